// Rows 21 to 29 and 31: files whose keys or weights make no model.
#include <gtest/gtest.h>

#include <limits>

#include "apps/bad_input/program.h"
#include "text/tokenizer_fixtures.h"

namespace sightline::testing {
namespace {

class ModelRowsTest : public ::testing::Test {
 protected:
  /// info and generate refuse the model whose `key` is `value`, naming file, byte and key.
  void expect_key_refused(const std::string& key, const GgufValue& value, const std::string& part = "") {
    SCOPED_TRACE(key + " = " + describe(value));
    tiny_.write_with(path_, key, value);
    expect_model_refused({"byte ", part.empty() ? key : part});
  }
  void expect_model_refused(std::vector<std::string> parts, int code = 65) {
    parts.push_back(path_);
    for (const auto& command : commands_on(path_)) {
      if (command[0] == "tokenize") continue;  // asks nothing of the model
      const RunResult result = sightline(command);
      expect_failure(result, code, parts);
      expect_peak(result, kPeakBytes);
    }
  }

  TempFolder folder_;
  TinyModel tiny_;
  std::string path_ = folder_.file("m.gguf");
};

std::uint32_t u32(std::int64_t v) { return static_cast<std::uint32_t>(v); }

TEST_F(ModelRowsTest, Rows21To25ValuesOutOfRangeAreRefusedByKey) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::pair<const char*, GgufValue> cases[] = {
      {"block_count", u32(0)},
      {"block_count", u32(1000000000)},
      {"block_count", std::string("3")},
      {"attention.head_count", u32(0)},
      {"attention.head_count_kv", u32(8)},
      {"attention.head_count_kv", u32(3)},
      {"rope.freq_base", 0.0F},
      {"rope.freq_base", -1.0F},
      {"rope.freq_base", nan},
      {"rope.freq_base", inf},
      {"rope.dimension_count", u32(7)},
      {"rope.dimension_count", u32(10)},
      {"rope.scaling.factor", 0.0F},
      {"attention.layer_norm_rms_epsilon", 0.0F},
      {"attention.layer_norm_rms_epsilon", -1e-5F},
      {"attention.layer_norm_rms_epsilon", nan},
      {"context_length", u32(0)},
      {"wavelets", u32(1)},
  };
  for (const auto& [key, value] : cases) expect_key_refused(std::string("llama.") + key, value);
}

TEST_F(ModelRowsTest, Row21MissingKeysAreRefusedByName) {
  for (const char* key : {"llama.block_count", "llama.attention.head_count", "llama.context_length",
                          "llama.attention.layer_norm_rms_epsilon", "general.architecture"}) {
    SCOPED_TRACE(key);
    Entries metadata = tiny_.metadata;
    remove_entry(metadata, key);
    write_llama_gguf(path_, tiny_.model, metadata);
    expect_model_refused({key});
  }
}

TEST_F(ModelRowsTest, Row22AWidthThatIsNoMultipleOfTheHeadsIsRefused) {
  Entries metadata = tiny_.metadata;
  set_entry(metadata, "llama.attention.head_count", u32(5));
  set_entry(metadata, "llama.attention.head_count_kv", u32(1));
  for (const char* key : {"key_length", "value_length"}) {
    remove_entry(metadata, std::string("llama.attention.") + key);
  }
  remove_entry(metadata, "llama.rope.dimension_count");
  write_llama_gguf(path_, tiny_.model, metadata);
  expect_model_refused(
      {"key 'llama.embedding_length': 24 is not a multiple of llama.attention.head_count = 5"});
}

TEST_F(ModelRowsTest, Row25AHugeContextIsCappedOrItsCacheRefused) {
  tiny_.write_with(path_, "llama.context_length", u32(std::int64_t{1} << 31));
  const RunResult info = sightline({"info", path_});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_NE(info.out.find("llama.context_length = "), std::string::npos) << info.out;
  const RunResult run = sightline(commands_on(path_)[2]);
  EXPECT_EQ(run.exit_code, 0) << run.err;  // pages come as they are needed
  expect_peak(run, kPeakBytes);
}

TEST_F(ModelRowsTest, Row26ShapesUnlikeTheKeysAreRefusedWithBoth) {
  const std::int64_t vocab = tiny_.model.spec.vocab_size;
  for (const std::int64_t rows : {vocab - 1, vocab + 1}) {
    TestModel model = tiny_.model;
    TestTensor& table = model.tensors.at("embedding.weight");
    table.shape[0] = rows;
    table.values.resize(static_cast<std::size_t>(rows) * 24);
    write_llama_gguf(path_, model, tiny_.metadata);
    expect_model_refused(
        {"'token_embd.weight'", fmt::format("[{}, 24]", vocab), fmt::format("[{}, 24]", rows)});
  }
  tiny_.write_with(path_, "llama.vocab_size", u32(vocab - 1));
  expect_model_refused({"byte", "'llama.vocab_size'", "tokenizer.ggml.tokens"});
}

TEST_F(ModelRowsTest, Rows27To29BadVocabulariesAreRefusedByField) {
  const auto n = static_cast<std::size_t>(tiny_.tokenizer.tokens.size());
  const auto tokens_with = [&](std::size_t at, const std::string& token) {
    TokenizerSpec spec = tiny_.tokenizer;
    spec.tokens[at] = token;
    GgufStrings strings;
    for (const std::string& text : spec.tokens) strings.push_back(text);
    return GgufArray(std::move(strings));
  };
  const std::pair<const char*, GgufValue> cases[] = {
      {"scores", GgufArray(std::vector<std::uint8_t>(n, 0))},
      {"scores", GgufArray(std::vector<float>(n - 1, 0.0F))},
      {"token_type", GgufArray(std::vector<float>(n, 1.0F))},
      {"token_type", GgufArray(std::vector<std::int32_t>(n + 1, 1))},
      {"tokens", tokens_with(3, "<0x-1>")},
      {"tokens", tokens_with(3, "<0xZZ>")},
      {"tokens", tokens_with(3, "<0x")},
      {"tokens", tokens_with(3, "<0x01>")},
      {"bos_token_id", u32(static_cast<std::int64_t>(n))},
      {"eos_token_id", u32(0xffffffff)},
      {"model", std::string("wordpieces")},
  };
  for (const auto& [field, value] : cases) {
    const std::string key = std::string("tokenizer.ggml.") + field;
    SCOPED_TRACE(key + " = " + describe(value));
    tiny_.write_with(path_, key, value);
    expect_refused(path_, key);
  }
}

TEST_F(ModelRowsTest, Row28ATokenOf100MiBIsRefusedInMemoryLikeTheFile) {
  TokenizerSpec spec = tiny_.tokenizer;
  const auto tokens_with = [&](std::size_t bytes) {
    GgufStrings strings;
    for (const std::string& text : spec.tokens) strings.push_back(text);
    strings.push_back(std::string(bytes, 'x'));
    return GgufArray(std::move(strings));
  };
  tiny_.write_with(path_, "tokenizer.ggml.tokens", tokens_with(std::size_t{100} << 20));
  expect_refused(path_, "over the limit of 67108864");
  // Within the limit it is a token as any other.
  Entries metadata = tiny_.metadata;
  spec.scores.push_back(0);
  spec.types.push_back(1);
  set_entry(metadata, "tokenizer.ggml.scores", GgufArray(spec.scores));
  set_entry(metadata, "tokenizer.ggml.token_type", GgufArray(spec.types));
  set_entry(metadata, "tokenizer.ggml.tokens", tokens_with(std::size_t{1} << 20));
  write_llama_gguf(path_, tiny_.model, metadata);
  const RunResult run = sightline({"tokenize", "-m", path_, "h"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST_F(ModelRowsTest, Row31WeightsThatAreNoNumbersEndARunWithTheReason) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const char* name : {"layer.1.q.weight", "layer.2.down.weight", "embedding.weight", "head.weight",
                             "final_norm.weight"}) {
      SCOPED_TRACE(fmt::format("{} in {}", bad, name));
      TestModel model = tiny_.model;
      // A whole row: whichever token is read or written.
      std::fill(model.tensors.at(name).values.begin(), model.tensors.at(name).values.end(), bad);
      write_llama_gguf(path_, model, tiny_.metadata);
      EXPECT_EQ(sightline({"info", path_}).exit_code, 0);
      for (const std::vector<std::string>& more :
           {std::vector<std::string>{},
            {"--temp", "1"},
            {"--json", "--logprobs", "2"},
            {"--json", "--logprobs", "2", "--echo", "-n", "0", "--tokens", "1,5,6"}}) {
        std::vector<std::string> command = {"generate", "-m", path_};
        if (more.size() < 6) command.insert(command.end(), {"-n", "2", "--tokens", "1"});
        command.insert(command.end(), more.begin(), more.end());
        SCOPED_TRACE(fmt::format("{}", fmt::join(more, " ")));
        expect_failure(sightline(command), 65, {path_, "not finite"});
      }
      const std::string text = folder_.file("text");
      put_text(text, "hello hello");
      expect_failure(sightline({"eval", "loss", "-m", path_, "-f", text}), 65, {path_, "not finite"});
    }
  }
}

}  // namespace
}  // namespace sightline::testing
