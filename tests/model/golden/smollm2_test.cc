// SmolLM2-135M-Instruct as people download it, against a float64 evaluation by an independent program.
// The file is named by SIGHTLINE_SMOLLM2.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "model/model_runner.h"
#include "sightline/base/file.h"
#include "sightline/model/model_text.h"
#include "sightline/ops/elementwise.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of tests/model

// f32 over 30 layers against float64; the file prints six digits.
constexpr double kTolerance = 2e-3;

struct Case {
  std::string name, prompt;
  std::vector<std::int32_t> prompt_ids, greedy_ids;
  struct Position {
    std::vector<std::int32_t> top_ids;
    std::vector<double> top_logprobs;
  };
  std::vector<Position> positions;  // after each token of prompt and answer
};

std::vector<std::int32_t> ids_of(const Json& json) {
  std::vector<std::int32_t> ids;
  for (const Json& id : *json.as_array()) ids.push_back(static_cast<std::int32_t>(*id.as_int()));
  return ids;
}

// Loaded once for the whole file: half a gigabyte of packed weights.
struct Shared {
  std::string skipped;
  std::string path;
  LoadedModel two_threads;
  std::vector<Case> cases;
};

Shared& shared() {
  static Shared s = [] {
    Shared out;
    const char* path = std::getenv("SIGHTLINE_SMOLLM2");
    const std::string golden = test_data("smollm2/golden.json");
    if (path == nullptr || !std::filesystem::exists(path)) out.skipped = "SIGHTLINE_SMOLLM2 names no file";
    if (golden.empty()) out.skipped = "SIGHTLINE_TEST_DATA: smollm2/golden.json is not there";
    if (!out.skipped.empty()) return out;
    out.path = path;
    out.two_threads = load_file(path, 2);
    const Json json = *parse_json(*read_file(golden), golden);
    for (const Json& c : *json.find("cases")->as_array()) {
      Case one;
      one.name = *c.find("name")->as_string();
      one.prompt = *c.find("prompt")->as_string();
      one.prompt_ids = ids_of(*c.find("prompt_ids"));
      one.greedy_ids = ids_of(*c.find("greedy_ids"));
      for (const Json& p : *c.find("positions")->as_array()) {
        Case::Position position;
        position.top_ids = ids_of(*p.find("top_ids"));
        for (const Json& x : *p.find("top_logprobs")->as_array()) {
          EXPECT_TRUE(x.get_number(position.top_logprobs.emplace_back()));
        }
        one.positions.push_back(std::move(position));
      }
      out.cases.push_back(std::move(one));
    }
    return out;
  }();
  return s;
}

class SmolLm2Test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!shared().skipped.empty()) GTEST_SKIP() << shared().skipped;
  }
  static Model& model() { return *shared().two_threads.model; }

  static Tokens whole_text(const Case& c) {
    std::vector<std::int32_t> ids = c.prompt_ids;
    ids.insert(ids.end(), c.greedy_ids.begin(), c.greedy_ids.end());
    ids.resize(c.positions.size());
    return tokens_of(std::move(ids));
  }

  // The largest difference from the published log-probabilities over all positions.
  static double largest_difference(const Case& c, const std::vector<float>& logits) {
    const auto vocab = static_cast<std::size_t>(model().spec().vocab_size);
    std::vector<double> logprobs(vocab);
    double largest = 0;
    for (std::size_t i = 0; i < c.positions.size(); ++i) {
      log_softmax(std::span(logits).subspan(i * vocab, vocab), logprobs);
      for (std::size_t t = 0; t < c.positions[i].top_ids.size(); ++t) {
        const double ours = logprobs[static_cast<std::size_t>(c.positions[i].top_ids[t])];
        const double d = std::abs(ours - c.positions[i].top_logprobs[t]);
        largest = std::isnan(d) ? 1e9 : std::max(largest, d);
      }
    }
    return largest;
  }
};

TEST_F(SmolLm2Test, PromptsBecomeThePublishedIds) {
  const auto text = load_model_text(shared().path);
  ASSERT_TRUE(text) << text.error().message;
  for (const Case& c : shared().cases) {
    EncodeOptions options;
    options.parse_special = true;
    const auto ids = text->tokenizer.encode(c.prompt, options);
    ASSERT_TRUE(ids) << ids.error().message;
    EXPECT_EQ(*ids, c.prompt_ids) << c.name;
  }
}

TEST_F(SmolLm2Test, LogProbabilitiesAtEveryPositionAreThePublishedOnes) {
  for (const Case& c : shared().cases) {
    const double largest = largest_difference(c, run_tokens(model(), whole_text(c)));
    EXPECT_LT(largest, kTolerance) << c.name;
    RecordProperty(c.name, fmt::format("{}", largest));
  }
}

TEST_F(SmolLm2Test, GreedyDecodingGivesThePublishedIds) {
  const std::int64_t vocab = model().spec().vocab_size;
  for (const Case& c : shared().cases) {
    KvCache cache = make_cache(model());
    const SequenceId sequence = cache.add_sequence();
    const Tokens prompt = tokens_of(c.prompt_ids);
    std::vector<float> logits = run_on(model(), cache, sequence, prompt);
    logits.erase(logits.begin(), logits.end() - vocab);
    std::vector<std::int32_t> written;
    for (std::int64_t pos = static_cast<std::int64_t>(prompt.ids.size());
         written.size() < c.greedy_ids.size(); ++pos) {
      written.push_back(
          static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      Tokens one;
      one.ids = {written.back()};
      one.coords = coords_range(pos, pos + 1);
      logits = run_on(model(), cache, sequence, one);
    }
    EXPECT_EQ(written, c.greedy_ids) << c.name;
  }
}

TEST_F(SmolLm2Test, ChunksAndThreadsGiveTheBitsOfTheWholeRun) {
  const Case& c = shared().cases[0];
  const Tokens tokens = whole_text(c);
  const std::vector<float> whole = run_tokens(model(), tokens);
  RunOptions options;
  for (const std::int64_t chunk : {1, 3, 16}) {
    options.chunk = chunk;
    EXPECT_TRUE(same_bits(run_tokens(model(), tokens, options), whole)) << chunk;
  }
  LoadedModel one = load_file(shared().path, 1);
  Model& single = *one.model;
  for (const std::int64_t chunk : {0, 1, 16}) {
    options.chunk = chunk;
    EXPECT_TRUE(same_bits(run_tokens(single, tokens, options), whole)) << "one thread, chunk " << chunk;
  }
  EXPECT_EQ(single.weights_hash(), model().weights_hash());
}

TEST_F(SmolLm2Test, TheOtherRowOrderFailsTheGoldenValues) {
  LoadOptions options;
  options.rope_pairing = RopePairing::kHalfSplit;
  LoadedModel wrong = load_file(shared().path, 2, options);
  const Case& c = shared().cases[0];
  EXPECT_GT(largest_difference(c, run_tokens(*wrong.model, whole_text(c))), 0.5);
}

TEST_F(SmolLm2Test, InfoSaysWhatTheFileIsAndLoadingTakesThePackedBytes) {
  const auto info = read_model_info(shared().path);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(count_parameters(info->spec).total(), 134515008);
  EXPECT_EQ(layer_groups(info->spec).size(), 1U);
  EXPECT_NE(info->qk_row_order.find("neighbours"), std::string::npos);
  EXPECT_TRUE(info->tokenizer);
  EXPECT_TRUE(info->has_chat_template);
  EXPECT_EQ(model().memory().weights, info->packed_weight_bytes);
  const MemoryTable table = memory_table(*info);
  EXPECT_EQ(table.context, 8192);
  EXPECT_EQ(table.cache_f32, std::int64_t{30} * 3 * 128 * 4 * 8192);
}

}  // namespace
}  // namespace sightline
