// The engine on small random models against the oracle by the error rule; what a load and a run leave behind.
#include <gtest/gtest.h>

#include <cmath>

#include "model/model_impl.h"
#include "model/model_kinds.h"
#include "model/model_runner.h"
#include "model/plain_model.h"
#include "sightline/formats/gguf.h"
#include "sightline/formats/gguf_writer.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

void expect_follows_oracle(const TestModel& model, const Tokens& tokens, std::span<const float> logits,
                           std::int64_t rope_length = 0) {
  const reference::ModelInputs inputs = as_inputs(tokens, rope_length);
  const auto oracle = reference::model_forward(model.spec, as_reference(model), inputs);
  ASSERT_TRUE(oracle) << oracle.error().message;
  const double allowed = allowed_error(oracle->logits, plain_logits(model, inputs));
  // A broken plain method would allow anything.
  ASSERT_LT(allowed, 1e-3);
  EXPECT_LE(largest_error(oracle->logits, logits), allowed);
}

TEST(ModelTest, LogitsOfEveryKindFollowTheOracle) {
  std::uint64_t seed = 10;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const TestModel model = random_model(kind.spec, ++seed);
    LoadedModel loaded = make_loaded(model);
    const Tokens tokens = random_tokens(kind.spec.vocab_size, 37, seed);
    RunOptions options;
    options.rope_length = kind.rope_length;
    expect_follows_oracle(model, tokens, run_tokens(*loaded.model, tokens, options), kind.rope_length);
  }
}

TEST(ModelTest, LayersFollowTheOracle) {
  const TestModel model = random_model(small_llama_spec(), 30);
  LoadedModel loaded = make_loaded(model);
  const Tokens tokens = random_tokens(50, 21, 30);
  const auto oracle = reference::model_forward(model.spec, as_reference(model), as_inputs(tokens));
  ASSERT_TRUE(oracle) << oracle.error().message;
  std::map<std::string, std::vector<float>> tapped;
  RunOptions options;
  options.tap = [&](std::string_view name, StridedView<const float, 2> rows) {
    std::vector<float>& out = tapped[std::string(name)];
    for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
      for (std::int64_t j = 0; j < rows.shape[1]; ++j) out.push_back(rows(i, j));
    }
  };
  run_tokens(*loaded.model, tokens, options);
  // Activations are near 1; three layers of f32 keep five digits. The sharp bound is on the logits above.
  constexpr double kFiveDigits = 1e-5;
  for (std::size_t i = 0; i < model.spec.layers.size(); ++i) {
    const std::string prefix = fmt::format("layer.{}.", i);
    const auto& layer = oracle->layers[i];
    for (const auto& [name, ref] :
         {std::pair{"q", &layer.q}, std::pair{"k", &layer.k}, std::pair{"v", &layer.v},
          std::pair{"attention", &layer.attention}, std::pair{"output", &layer.output}}) {
      EXPECT_LT(largest_error(*ref, tapped[prefix + name]), kFiveDigits) << prefix << name;
    }
  }
  EXPECT_LT(largest_error(oracle->final_norm, tapped["final_norm"]), kFiveDigits);
}

TEST(ModelTest, ConstantShiftOfRotaryPositionsChangesNothingOfPureRopeAndChangesLearnedPositions) {
  for (const ModelSpec& spec : {small_llama_spec(), small_gpt2_spec()}) {
    const TestModel model = random_model(spec, 68);
    LoadedModel loaded = make_loaded(model);
    Tokens tokens = random_tokens(50, 25, 68);
    const std::vector<float> before = run_tokens(*loaded.model, tokens);
    const auto oracle = reference::model_forward(spec, as_reference(model), as_inputs(tokens));
    ASSERT_TRUE(oracle) << oracle.error().message;
    for (std::int64_t i = 0; i < 25; ++i) tokens.rope_pos.push_back(i + 15);
    const std::vector<float> after = run_tokens(*loaded.model, tokens);
    const double allowed = allowed_error(oracle->logits, plain_logits(model, as_inputs(tokens)));
    if (spec.num_learned_positions == 0) {
      EXPECT_LE(largest_error(oracle->logits, after), allowed);
    } else {
      EXPECT_GT(largest_error(oracle->logits, after), 0.1);
    }
  }
}

TEST(ModelTest, OneModelFromGgufAndFromFolderGivesEqualBitsAndTheWrongRowOrderDoesNot) {
  TempFolder folder;
  const TestModel model = random_model(small_llama_spec(), 70);
  Entries metadata = llama_metadata(model.spec);
  // The file says its epsilon and theta as f32; the folder says the same numbers.
  ModelSpec spec = model.spec;
  spec.norm.epsilon = static_cast<float>(spec.norm.epsilon);
  write_llama_gguf(folder.file("m.gguf"), model, metadata);
  write_llama_hf(folder.file("hf"), model, llama_config(spec));
  const Tokens tokens = random_tokens(50, 30, 70);
  std::vector<float> gguf_logits;
  for (const char* name : {"m.gguf", "hf"}) {
    LoadedModel loaded = load_file(folder.file(name));
    const std::vector<float> logits = run_tokens(*loaded.model, tokens);
    expect_follows_oracle(model, tokens, logits);
    if (gguf_logits.empty()) gguf_logits = logits;
    EXPECT_TRUE(same_bits(logits, gguf_logits));
    LoadOptions wrong;
    wrong.rope_pairing = gguf_logits == logits && std::string(name) == "hf" ? RopePairing::kInterleaved
                                                                            : RopePairing::kHalfSplit;
    LoadedModel other = load_file(folder.file(name), 1, wrong);
    const std::vector<float> wrong_logits = run_tokens(*other.model, tokens);
    // Position 0 is not rotated, so a wrong order only adds in another order; it shows from the second token
    // on.
    for (std::size_t t = 0; t < 50; ++t) EXPECT_NEAR(wrong_logits[t], logits[t], 1e-5);
    float largest = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      largest = std::max(largest, std::abs(logits[i] - wrong_logits[i]));
    EXPECT_GT(largest, 0.05) << name;
  }
}

TEST(ModelTest, AGgufInPartsGivesTheBitsOfTheWholeFile) {
  TempFolder folder;
  const TestModel model = random_model(small_llama_spec(), 79);
  write_llama_gguf(folder.file("m.gguf"), model, llama_metadata(model.spec));
  const auto whole = GgufFile::open(std::filesystem::path(folder.file("m.gguf")));
  ASSERT_TRUE(whole) << whole.error().message;
  const std::size_t num_tensors = whole->tensors().size();
  for (int part = 0; part < 2; ++part) {
    Entries metadata = part == 0 ? whole->metadata().entries() : Entries{};
    metadata.push_back({"split.no", static_cast<std::uint16_t>(part), 0});
    metadata.push_back({"split.count", std::uint16_t{2}, 0});
    metadata.push_back({"split.tensors.count", static_cast<std::int32_t>(num_tensors), 0});
    const auto tensors =
        std::span(whole->tensors()).subspan(part == 0 ? 0 : 7, part == 0 ? 7 : num_tensors - 7);
    std::vector<TensorDecl> decls;
    for (const TensorInfo& info : tensors) decls.push_back({info.name, info.type, info.shape});
    auto writer =
        create_gguf(folder.file(fmt::format("p-{:05}-of-00002.gguf", part + 1)), metadata, decls, true);
    ASSERT_TRUE(writer) << writer.error().message;
    for (const TensorInfo& info : tensors) {
      std::vector<std::byte> bytes(info.num_bytes);
      ASSERT_TRUE(whole->read_into(info, bytes));
      ASSERT_TRUE(writer->append_bytes(bytes));
    }
    ASSERT_TRUE(writer->commit());
  }
  const Tokens tokens = random_tokens(50, 20, 79);
  LoadedModel one = load_file(folder.file("m.gguf"));
  LoadedModel parts = load_file(folder.file("p-00001-of-00002.gguf"));
  EXPECT_TRUE(same_bits(run_tokens(*parts.model, tokens), run_tokens(*one.model, tokens)));
}

TEST(ModelTest, Gpt2FolderFollowsTheOracle) {
  TempFolder folder;
  const TestModel model = random_model(small_gpt2_spec(), 71);
  write_gpt2_hf(folder.file("hf"), model, gpt2_config(model.spec), "transformer.");
  LoadedModel loaded = load_file(folder.file("hf"), 2);
  const Tokens tokens = random_tokens(50, 30, 71);
  expect_follows_oracle(model, tokens, run_tokens(*loaded.model, tokens));
}

TEST(ModelTest, InferenceLeavesTheHashOfTheWeightsUnchangedAndOneBitChangesIt) {
  TestModel model = random_model(small_llama_spec(), 72);
  LoadedModel loaded = make_loaded(model, 2);
  const std::uint64_t before = loaded.model->weights_hash();
  run_tokens(*loaded.model, random_tokens(50, 30, 72));
  EXPECT_EQ(loaded.model->weights_hash(), before);
  float& weight = model.tensors["layer.1.down.weight"].values[100];
  weight = std::nextafter(weight, 10.0F);
  EXPECT_NE(make_loaded(model).model->weights_hash(), before);
}

TEST(ModelTest, MemoryIsPackedWeightsAndTheStatedActivations) {
  const TestModel model = random_model(small_llama_spec(), 73);
  LoadedModel loaded = make_loaded(model);
  EXPECT_EQ(loaded.model->memory().weights, loaded.model->info().packed_weight_bytes);
  RunOptions options;
  options.chunk = 30;
  run_tokens(*loaded.model, random_tokens(50, 30, 73), options);
  EXPECT_EQ(loaded.model->memory().activations, activation_floats(model.spec, 30, 30) * 4);
  // Buffers are kept: a shorter call grows nothing.
  run_tokens(*loaded.model, random_tokens(50, 5, 74));
  EXPECT_EQ(loaded.model->memory().activations, activation_floats(model.spec, 30, 30) * 4);
}

}  // namespace
}  // namespace sightline
