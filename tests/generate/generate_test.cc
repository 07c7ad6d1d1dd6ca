// The generation loop on a small random model: what comes out of a prompt depends on that prompt alone.
#include "sightline/generate/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/model_runner.h"
#include "model/text_fixtures.h"
#include "sightline/faults/fault_table.h"
#include "sightline/model/model_text.h"
#include "sightline/ops/elementwise.h"

namespace sightline {

// Found by EXPECT_EQ: logprobs are equal to the bit (or both NaN, which never happens in a good run).
static bool operator==(const AlternativeLogprob& a, const AlternativeLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob;
}
static bool operator==(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob && a.top == b.top;
}

namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

class GenerateTest : public ::testing::Test {
 protected:
  GenerateTest() {
    const std::string path = folder_.file("m.gguf");
    write_text_model(path, 90);
    two_threads_ = load_file(path, 2);
    one_thread_ = load_file(path, 1);
    text_.emplace(*load_model_text(path));
  }

  std::vector<TokenId> encode(const std::string& text) const { return *text_->tokenizer.encode(text); }
  // Lengths of 2 to 75 tokens: ragged, and longer than a page.
  std::vector<std::vector<TokenId>> prompts() const {
    return {encode("Once"), encode(std::string(73, 'x')), encode(""), encode("a b a b"),
            encode("d\u00e9j\u00e0 vu, line 2\n")};
  }

  std::vector<GenerateResult> run(const std::vector<std::vector<TokenId>>& prompts,
                                  const GenerateOptions& options, const GenerateHooks& hooks = {},
                                  bool on_one_thread = false) {
    auto results = generate(on_one_thread ? *one_thread_.model : *two_threads_.model, text_->tokenizer,
                            prompts, options, hooks);
    EXPECT_TRUE(results) << results.error().message;
    return results ? std::move(*results) : std::vector<GenerateResult>(prompts.size());
  }
  GenerateResult run_one(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                         const GenerateHooks& hooks = {}) {
    return run({prompt}, options, hooks).front();
  }

  static void expect_equal(const GenerateResult& a, const GenerateResult& b) {
    EXPECT_EQ(a.prompt_ids, b.prompt_ids);
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.text, b.text);
    EXPECT_EQ(a.reason, b.reason);
    EXPECT_TRUE(a.logprobs == b.logprobs);
  }

  TempFolder folder_;
  LoadedModel two_threads_, one_thread_;
  std::optional<ModelText> text_;
};

GenerateOptions greedy(std::int64_t max_tokens) {
  return {.max_tokens = max_tokens, .num_logprobs = 3, .echo = true};
}
GenerateOptions sampled(std::int64_t max_tokens) {
  GenerateOptions options = greedy(max_tokens);
  options.sampling = {.temperature = 1.5, .top_k = 40, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 4};
  return options;
}

TEST_F(GenerateTest, EveryPromptOfABatchEqualsThePromptAloneToTheBit) {
  for (GenerateOptions options : {greedy(20), sampled(20)}) {
    for (const std::int64_t chunk : {512, 7}) {
      options.chunk = chunk;
      const auto together = run(prompts(), options);
      for (std::size_t i = 0; i < together.size(); ++i) {
        SCOPED_TRACE(i);
        expect_equal(together[i], run_one(prompts()[i], options));
        EXPECT_EQ(together[i].logprobs.size(), prompts()[i].size() + together[i].ids.size());
      }
      // Other company, other order.
      const auto pair = run({prompts()[3], prompts()[1]}, options);
      expect_equal(pair[0], together[3]);
      expect_equal(pair[1], together[1]);
    }
  }
}

TEST_F(GenerateTest, ChunksThreadsAndPagesChangeNoBit) {
  const auto whole = run(prompts(), sampled(12));
  for (const bool on_one_thread : {true, false}) {
    for (const std::int64_t chunk : {1, 3, 16}) {
      GenerateOptions options = sampled(12);
      options.chunk = chunk;
      options.page_size = chunk == 3 ? 16 : 64;
      const auto cut = run(prompts(), options, {}, on_one_thread);
      for (std::size_t i = 0; i < whole.size(); ++i) expect_equal(cut[i], whole[i]);
    }
  }
}

TEST_F(GenerateTest, LogprobsAreTheLogSoftmaxOfTheModelAtEveryPosition) {
  const std::vector<TokenId> prompt = prompts()[4];
  const GenerateResult result = run_one(prompt, greedy(15));
  std::vector<TokenId> ids = prompt;
  ids.insert(ids.end(), result.ids.begin(), result.ids.end());
  ASSERT_EQ(result.logprobs.size(), ids.size());
  EXPECT_FALSE(result.logprobs[0].logprob);
  const std::vector<float> logits = run_tokens(*one_thread_.model, tokens_of(ids));
  std::vector<double> expected(kByteVocabularySize);
  for (std::size_t i = 1; i < ids.size(); ++i) {
    log_softmax(std::span(logits).subspan((i - 1) * expected.size(), expected.size()), expected);
    const TokenLogprob& entry = result.logprobs[i];
    EXPECT_EQ(entry.id, ids[i]);
    EXPECT_EQ(*entry.logprob, expected[static_cast<std::size_t>(ids[i])]) << i;
    ASSERT_EQ(entry.top.size(), 3U);
    std::vector<double> sorted = expected;
    std::sort(sorted.begin(), sorted.end(), std::greater());
    for (std::size_t t = 0; t < 3; ++t) {
      EXPECT_EQ(entry.top[t].logprob, sorted[t]) << i;
      EXPECT_EQ(entry.top[t].logprob, expected[static_cast<std::size_t>(entry.top[t].id)]) << i;
    }
    if (i >= prompt.size()) {
      EXPECT_EQ(entry.id, entry.top[0].id) << "greedy takes the likeliest";
    }
  }
}

TEST_F(GenerateTest, WithoutEchoOnlyNewTokensAreReportedAndNewTokensZeroOnlyScores) {
  GenerateOptions options = greedy(5);
  options.echo = false;
  const GenerateResult result = run_one(prompts()[0], options);
  EXPECT_EQ(result.logprobs.size(), 5U);
  EXPECT_EQ(result.text.find("Once"), std::string::npos);
  const GenerateResult echoed = run_one(prompts()[0], greedy(5));
  EXPECT_EQ(echoed.text.substr(0, 4), "Once");
  EXPECT_TRUE(std::equal(result.logprobs.begin(), result.logprobs.end(), echoed.logprobs.end() - 5));
  const GenerateResult scored = run_one(prompts()[0], greedy(0));
  EXPECT_TRUE(scored.ids.empty());
  EXPECT_EQ(scored.logprobs.size(), prompts()[0].size());
  EXPECT_TRUE(std::equal(scored.logprobs.begin(), scored.logprobs.end(), echoed.logprobs.begin()));
}

TEST_F(GenerateTest, StreamedTextJoinsToTheFinalTextOfEachPrompt) {
  GenerateOptions options = sampled(40);
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{}, std::vector<std::string>{"b", "7"}}) {
    options.stops = stops;
    std::vector<std::string> streamed(prompts().size());
    std::size_t num_pieces = 0;
    GenerateHooks hooks;
    hooks.on_text = [&](std::size_t i, std::string_view piece) {
      streamed[i] += piece;
      ++num_pieces;
    };
    const auto results = run(prompts(), options, hooks);
    for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(streamed[i], results[i].text) << i;
    EXPECT_GT(num_pieces, 2 * results.size());
  }
}

TEST_F(GenerateTest, AStopStringIsCutEndsItsPromptAndLeavesTheOthersAlone) {
  GenerateOptions options = sampled(40);
  options.echo = false;
  const auto free = run(prompts(), options);
  // A stretch of the first prompt's own text that no other prompt writes.
  std::string stop;
  for (std::size_t at = 3; at + 3 < free[0].text.size() && stop.empty(); ++at) {
    stop = free[0].text.substr(at, 3);
    for (std::size_t i = 1; i < free.size(); ++i) {
      if (free[i].text.find(stop) != std::string::npos) stop.clear();
    }
  }
  ASSERT_FALSE(stop.empty());
  options.stops = {stop};
  const auto stopped = run(prompts(), options);
  EXPECT_EQ(stopped[0].reason, FinishReason::kStop);
  EXPECT_EQ(stopped[0].text, free[0].text.substr(0, free[0].text.find(stop)));
  EXPECT_LT(stopped[0].ids.size(), free[0].ids.size());
  for (std::size_t i = 1; i < free.size(); ++i) expect_equal(stopped[i], free[i]);
}

TEST_F(GenerateTest, AFullContextEndsWithAReasonAfterTheLastTokenThatFits) {
  GenerateOptions options = greedy(100);
  options.context = 30;
  options.ignore_end = true;
  const std::vector<TokenId> prompt = encode("Once");
  const GenerateResult result = run_one(prompt, options);
  EXPECT_EQ(result.reason, FinishReason::kContext);
  // The last token is sampled from a full cache and is not fed.
  EXPECT_EQ(prompt.size() + result.ids.size(), 31U);
  options.max_tokens = static_cast<std::int64_t>(result.ids.size());
  options.context = 256;
  EXPECT_EQ(run_one(prompt, options).ids, result.ids);
}

TEST_F(GenerateTest, AnEndTokenEndsUnlessIgnored) {
  GenerateOptions options = sampled(200);
  options.sampling = {.temperature = 100.0, .seed = 1};  // near uniform: every token comes up
  GenerateResult ended;
  for (; options.sampling.seed < 20; ++options.sampling.seed) {
    ended = run_one(prompts()[0], options);
    if (ended.reason == FinishReason::kEnd) break;
  }
  ASSERT_EQ(ended.reason, FinishReason::kEnd);
  EXPECT_EQ(ended.ids.back(), text_->tokenizer.eos_id());
  EXPECT_EQ(ended.text.find("</s>"), std::string::npos);
  options.ignore_end = true;
  const GenerateResult longer = run_one(prompts()[0], options);
  EXPECT_EQ(longer.reason, FinishReason::kLength);
  EXPECT_EQ(longer.ids.size(), 200U);
  EXPECT_TRUE(std::equal(ended.ids.begin(), ended.ids.end(), longer.ids.begin()));
}

TEST_F(GenerateTest, ACancelledRunKeepsWhatItHas) {
  const GenerateResult whole = run_one(prompts()[1], greedy(10));
  GenerateHooks hooks;
  int num_asked = 0;
  hooks.cancelled = [&] { return ++num_asked > 4; };
  const GenerateResult result = run_one(prompts()[1], greedy(10), hooks);
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  ASSERT_EQ(result.ids.size(), 4U);
  EXPECT_TRUE(std::equal(result.ids.begin(), result.ids.end(), whole.ids.begin()));
  EXPECT_EQ(whole.text.substr(0, result.text.size()), result.text);
}

TEST_F(GenerateTest, PlantedFaultsKeepEveryShapeAndChangeTheNumbers) {
  GenerateOptions options = greedy(12);
  options.chunk = 5;
  const GenerateResult right = run_one(prompts()[4], options);
  // Those of the demo, which change coordinates, and one that changes the specs.
  for (const char* slug :
       {"mask.top_left_alignment", "cache.position_offset", "cache.shift_rerotation", "rope.pairing"}) {
    SCOPED_TRACE(slug);
    const Fault fault = *parse_fault(slug);
    ASSERT_TRUE(runs_in_engine(*fault.kind));
    GenerateHooks hooks;
    if (fault.kind->on_spec != nullptr) {
      hooks.specs = two_threads_.model->attention_specs();
      ASSERT_TRUE(plant(fault, std::span(hooks.specs)));
    }
    if (fault.kind->on_call != nullptr) {
      hooks.change_call = [&](CallCoords& call) { return plant(fault, call); };
    }
    const GenerateResult wrong = run_one(prompts()[4], options, hooks);
    EXPECT_EQ(wrong.ids.size(), right.ids.size());
    ASSERT_EQ(wrong.logprobs.size(), right.logprobs.size());
    EXPECT_NE(wrong.ids, right.ids);
    double largest = 0;
    for (std::size_t i = 1; i < prompts()[4].size(); ++i) {
      largest = std::max(largest, std::abs(*wrong.logprobs[i].logprob - *right.logprobs[i].logprob));
    }
    EXPECT_GT(largest, 1e-2);
  }
}

// Keys are rotated by the cache: it has to know the changed specs too.
TEST_F(GenerateTest, AChangedBaseIsThatOfAFileThatSaysIt) {
  ModelSpec spec = small_llama_spec();
  spec.vocab_size = kByteVocabularySize;
  spec.context_length = 256;
  for (LayerSpec& layer : spec.layers) layer.attention.rope.theta = 50000;
  Entries metadata = llama_metadata(spec);
  for (const GgufEntry& entry : byte_vocabulary()) metadata.push_back(entry);
  const std::string path = folder_.file("base.gguf");
  write_llama_gguf(path, random_model(spec, 90), metadata);
  const LoadedModel other = load_file(path);
  GenerateHooks hooks;
  hooks.specs = two_threads_.model->attention_specs();
  for (AttentionSpec& layer : hooks.specs) layer.rope.theta = 50000;
  const GenerateOptions options{.max_tokens = 6, .num_logprobs = 0, .echo = true, .chunk = 4};
  const std::vector<std::vector<TokenId>> prompts{encode("d\u00e9j\u00e0 vu")};
  const auto planted = run(prompts, options, hooks);
  const auto said = generate(*other.model, text_->tokenizer, prompts, options);
  ASSERT_TRUE(said) << said.error().message;
  EXPECT_EQ(planted.front().logprobs, said->front().logprobs);
  EXPECT_NE(planted.front().logprobs, run(prompts, options).front().logprobs);
}

TEST_F(GenerateTest, WhatCannotRunIsRefusedByName) {
  const auto message = [&](const std::vector<std::vector<TokenId>>& given, const GenerateOptions& options,
                           const GenerateHooks& hooks = {}) {
    const auto results = generate(*one_thread_.model, text_->tokenizer, given, options, hooks);
    return results ? std::string("accepted") : results.error().message;
  };
  const auto expect_named = [](const std::string& text, const std::string& word) {
    EXPECT_NE(text.find(word), std::string::npos) << text;
  };
  expect_named(message({{1}, {}}, {}), "prompt 1 holds no token");
  expect_named(message({{1, 262}}, {}), "262");
  expect_named(message({std::vector<TokenId>(257, 1)}, {}), "257");
  expect_named(message({{1}}, {.max_tokens = -1}), "max_tokens");
  expect_named(message({{1}}, {.num_logprobs = 263}), "num_logprobs");
  expect_named(message({{1}}, {.chunk = 0}), "chunk");
  expect_named(message({{1}}, {.stops = {""}}), "stop");
  GenerateHooks shorter;
  shorter.change_call = [](CallCoords& call) -> Result<void> {
    call.q_coords.pop_back();
    return {};
  };
  expect_named(message({{1, 2}}, {}, shorter), "changed call");
}

}  // namespace
}  // namespace sightline
