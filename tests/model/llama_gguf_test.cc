// The keys of a GGUF llama become a spec; what is missing, out of range or unknown is refused by name.
#include <gtest/gtest.h>

#include <limits>

#include "model/families/family.h"
#include "model/model_fixtures.h"

namespace sightline {
namespace {

using testing::Entries;
using testing::TempFolder;
using testing::TestModel;
using testing::TestTensor;

class LlamaGgufTest : public ::testing::Test {
 protected:
  Result<FamilyModel> read(const Entries& metadata, const LoadOptions& options = {},
                           const std::map<std::string, TestTensor>& more = {}) {
    const std::string path = folder_.file("model.gguf");
    testing::write_llama_gguf(path, model_, metadata, more);
    SIGHTLINE_TRY(const ModelFiles files, open_model_files(path, options));
    return read_family(files, options);
  }
  Result<FamilyModel> read_with(const std::string& key, GgufValue value, const LoadOptions& options = {}) {
    Entries metadata = metadata_;
    testing::set_entry(metadata, key, std::move(value));
    return read(metadata, options);
  }
  void expect_refused(const Result<FamilyModel>& result, const std::string& named,
                      ErrorKind kind = ErrorKind::kInvalidContent) {
    ASSERT_FALSE(result) << "accepted, but should name " << named;
    EXPECT_EQ(result.error().kind, kind) << result.error().message;
    EXPECT_NE(result.error().message.find(named), std::string::npos) << result.error().message;
  }

  TempFolder folder_;
  TestModel model_ = testing::random_model(testing::small_llama_spec(), 1);
  Entries metadata_ = testing::llama_metadata(model_.spec);
};

std::uint32_t u32(std::int64_t v) { return static_cast<std::uint32_t>(v); }

const Assumption* find_assumption(const FamilyModel& model, const std::string& key) {
  for (const Assumption& a : model.assumptions) {
    if (a.key == key) return &a;
  }
  return nullptr;
}

TEST_F(LlamaGgufTest, KeysBecomeTheSpecOfTheModelThatWasWritten) {
  const auto model = read(metadata_);
  ASSERT_TRUE(model) << model.error().message;
  ModelSpec expected = model_.spec;
  expected.norm.epsilon = static_cast<float>(expected.norm.epsilon);
  EXPECT_EQ(model->spec, expected) << to_json(model->spec).dump(1);
  EXPECT_NE(model->qk_row_order.find("neighbours"), std::string::npos);
}

TEST_F(LlamaGgufTest, EveryDefaultThatIsTakenIsNoted) {
  Entries metadata = metadata_;
  testing::set_entry(metadata, "llama.embedding_length", u32(24));
  for (const char* key : {"llama.rope.freq_base", "llama.rope.dimension_count"}) {
    testing::remove_entry(metadata, key);
  }
  const auto model = read(metadata);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.theta, 10000);
  EXPECT_EQ(model->spec.layers[0].attention.rope.rotary_dim, 8);
  for (const char* key :
       {"llama.rope.freq_base", "llama.rope.dimension_count", "llama.attention.sliding_window"}) {
    EXPECT_NE(find_assumption(*model, key), nullptr) << key;
  }
  // Nothing is noted for what the file says.
  EXPECT_EQ(find_assumption(*model, "llama.attention.key_length"), nullptr);
}

TEST_F(LlamaGgufTest, HeadWidthIsTheEmbeddingByTheHeadsWhereNoKeySaysIt) {
  Entries metadata = metadata_;
  testing::remove_entry(metadata, "llama.attention.key_length");
  testing::remove_entry(metadata, "llama.attention.value_length");
  testing::remove_entry(metadata, "llama.rope.dimension_count");
  // 24 / 4 is 6, and the weights have heads of 8: the shapes contradict.
  expect_refused(read(metadata), "[24, 24]");
}

TEST_F(LlamaGgufTest, AValueWidthThatNoKeySaysIsTheEmbeddingByTheHeadsAlsoBesideAKeyWidth) {
  Entries metadata = metadata_;
  testing::remove_entry(metadata, "llama.attention.value_length");
  // 24 / 4 is 6, whatever the width of keys; the weights have values of 8.
  expect_refused(read(metadata),
                 "'blk.0.attn_v.weight' (q, k, v projections): the hyperparameters ask for shape [12, 24]");
}

// Bad-input rows 21 to 25: one value each.
TEST_F(LlamaGgufTest, ValuesOutOfRangeAreRefusedByKey) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const std::pair<std::string, GgufValue> cases[] = {
      {"llama.block_count", u32(0)},
      {"llama.block_count", u32(1000000000)},
      {"llama.block_count", std::string("3")},
      {"llama.block_count", std::int32_t{-1}},
      {"llama.embedding_length", u32(0)},
      {"llama.feed_forward_length", u32(0)},
      {"llama.attention.head_count", u32(0)},
      {"llama.attention.head_count", std::string("4")},
      {"llama.attention.head_count_kv", u32(8)},
      {"llama.attention.head_count_kv", u32(3)},
      {"llama.attention.head_count_kv", u32(0)},
      {"llama.attention.key_length", u32(0)},
      {"llama.attention.key_length", u32(5000)},
      {"llama.rope.freq_base", 0.0F},
      {"llama.rope.freq_base", -1.0F},
      {"llama.rope.freq_base", static_cast<float>(nan)},
      {"llama.rope.freq_base", static_cast<float>(inf)},
      {"llama.rope.freq_base", std::string("10000")},
      {"llama.rope.dimension_count", u32(7)},
      {"llama.rope.dimension_count", u32(10)},
      {"llama.rope.dimension_count", u32(0)},
      {"llama.rope.scaling.factor", 0.0F},
      {"llama.rope.scaling.factor", static_cast<float>(nan)},
      {"llama.attention.layer_norm_rms_epsilon", 0.0F},
      {"llama.attention.layer_norm_rms_epsilon", -1e-5F},
      {"llama.attention.layer_norm_rms_epsilon", static_cast<float>(nan)},
      {"llama.context_length", u32(0)},
      {"llama.context_length", std::int32_t{-5}},
      {"llama.vocab_size", u32(0)},
      {"llama.attention.scale", 0.0F},
      {"llama.attention.sliding_window", std::int32_t{-1}},
      {"llama.attn_logit_softcapping", -1.0F},
  };
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(key + " = " + describe(value));
    expect_refused(read_with(key, value), key);
  }
}

TEST_F(LlamaGgufTest, MissingKeysThatNothingElseSaysAreRefusedByName) {
  for (const char* key :
       {"llama.block_count", "llama.embedding_length", "llama.feed_forward_length", "llama.context_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon", "llama.vocab_size"}) {
    Entries metadata = metadata_;
    testing::remove_entry(metadata, key);
    SCOPED_TRACE(key);
    expect_refused(read(metadata), key);
  }
}

TEST_F(LlamaGgufTest, HugeContextIsCappedAndNoted) {
  const auto model = read_with("llama.context_length", u32(std::int64_t{1} << 31));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.context_length, kMaxContext);
  EXPECT_NE(find_assumption(*model, "llama.context_length"), nullptr);
}

// Bad-input row 26, and the edited config of the issue.
TEST_F(LlamaGgufTest, ShapesThatDoNotFollowFromTheKeysAreRefusedWithBoth) {
  expect_refused(read_with("llama.vocab_size", u32(51)), "'token_embd.weight'");
  expect_refused(read_with("llama.vocab_size", u32(51)), "[51, 24], the file has [50, 24]");
  expect_refused(read_with("llama.attention.head_count_kv", u32(4)), "[32, 24], the file has [16, 24]");
  expect_refused(read_with("llama.attention.head_count", u32(8)), "[64, 24], the file has [32, 24]");
  expect_refused(read_with("llama.feed_forward_length", u32(41)), "[41, 24], the file has [40, 24]");
  expect_refused(read_with("llama.block_count", u32(4)), "'blk.3.attn_norm.weight'");
}

TEST_F(LlamaGgufTest, TensorsThatNobodyReadsAreRefused) {
  expect_refused(read_with("llama.block_count", u32(2)), "'blk.2.");
  expect_refused(read(metadata_, {}, {{"blk.0.attn_sinks.weight", {{4}, {0, 0, 0, 0}}}}),
                 "'blk.0.attn_sinks.weight'");
}

TEST_F(LlamaGgufTest, UnknownKeysOfTheArchitectureAreRefusedUnlessStatedToBeWithoutMeaning) {
  expect_refused(read_with("llama.attention.wavelets", u32(1)), "llama.attention.wavelets");
  LoadOptions options;
  options.ignored_keys = {"llama.attention.wavelets"};
  EXPECT_TRUE(read_with("llama.attention.wavelets", u32(1), options));
  for (const char* key : {"llama.expert_count", "llama.logit_scale", "llama.attention.max_alibi_bias"}) {
    expect_refused(read_with(key, 4.0F), key);
  }
  expect_refused(read_with("llama.attention.causal", false), "llama.attention.causal");
}

TEST_F(LlamaGgufTest, OtherArchitecturesAndPartsOfModelsAreRefusedByName) {
  expect_refused(read_with("general.architecture", std::string("qwen9")), "qwen9");
  expect_refused(read_with("general.type", std::string("adapter")), "general.type");
}

TEST_F(LlamaGgufTest, LinearAndYarnScalingBecomeRopeSpecs) {
  Entries metadata = metadata_;
  testing::set_entry(metadata, "llama.rope.scaling.factor", 4.0F);
  auto model = read(metadata);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[1].attention.rope.scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(model->spec.layers[1].attention.rope.scaling.factor, 4);
  EXPECT_NE(find_assumption(*model, "llama.rope.scaling.type"), nullptr);

  testing::set_entry(metadata, "llama.rope.scaling.type", std::string("yarn"));
  testing::set_entry(metadata, "llama.rope.scaling.original_context_length", u32(64));
  model = read(metadata);
  ASSERT_TRUE(model) << model.error().message;
  const RopeSpec& rope = model->spec.layers[2].attention.rope;
  EXPECT_EQ(rope.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(rope.scaling.original_context, 64);
  EXPECT_EQ(rope.scaling.ramp, YarnRamp::kDimension);
  EXPECT_DOUBLE_EQ(rope.cos_sin_magnitude, 1.0 + 0.1 * std::log(4.0));

  testing::set_entry(metadata, "llama.rope.scaling.attn_factor", 0.5F);
  model = read(metadata);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_DOUBLE_EQ(model->spec.layers[0].attention.rope.cos_sin_magnitude, 0.5 * (1.0 + 0.1 * std::log(4.0)));
}

TEST_F(LlamaGgufTest, UnknownScalingIsRefusedUntilItIsStated) {
  Entries metadata = metadata_;
  testing::set_entry(metadata, "llama.rope.scaling.factor", 4.0F);
  testing::set_entry(metadata, "llama.rope.scaling.type", std::string("spiral"));
  expect_refused(read(metadata), "--rope-scaling");
  LoadOptions options;
  options.rope_scaling.emplace();
  options.rope_scaling->kind = RopeScalingKind::kLinear;
  options.rope_scaling->factor = 2;
  const auto model = read(metadata, options);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling, *options.rope_scaling);
}

TEST_F(LlamaGgufTest, RopeFreqsTensorBecomesDivisors) {
  const std::map<std::string, TestTensor> freqs = {{"rope_freqs.weight", {{4}, {1, 1.5F, 4, 8}}}};
  auto model = read(metadata_, {}, freqs);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kDivisors);
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.long_divisors, (std::vector<double>{1, 1.5, 4, 8}));
  expect_refused(read(metadata_, {}, {{"rope_freqs.weight", {{3}, {1, 1, 1}}}}), "rope_freqs.weight");
  expect_refused(read(metadata_, {}, {{"rope_freqs.weight", {{4}, {1, 0, 1, 1}}}}), "divisor");
}

TEST_F(LlamaGgufTest, WindowAndOtherStatementsAreTakenAndNoted) {
  auto model = read_with("llama.attention.sliding_window", u32(16));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[0].attention.mask), "causal & window(16)");
  LoadOptions options;
  options.window = 7;
  options.rope_theta = 5e5;
  options.rope_pairing = RopePairing::kHalfSplit;
  model = read(metadata_, options);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[2].attention.mask), "causal & window(7)");
  EXPECT_EQ(model->spec.layers[2].attention.rope.theta, 5e5);
  EXPECT_NE(model->qk_row_order.find("stated by the caller"), std::string::npos);
  for (const char* key : {"--window", "--rope-theta", "--rope-pairing"}) {
    EXPECT_NE(find_assumption(*model, key), nullptr) << key;
  }
}

TEST_F(LlamaGgufTest, HeadCountsMayDifferByLayer) {
  Entries metadata = metadata_;
  testing::set_entry(metadata, "llama.attention.head_count_kv",
                     GgufArray(std::vector<std::int32_t>{2, 2, 2}));
  EXPECT_TRUE(read(metadata));
  testing::set_entry(metadata, "llama.attention.head_count_kv",
                     GgufArray(std::vector<std::int32_t>{2, 1, 2}));
  expect_refused(read(metadata), "'blk.1.attn_k.weight'");
  testing::set_entry(metadata, "llama.attention.head_count_kv", GgufArray(std::vector<std::int32_t>{2, 2}));
  expect_refused(read(metadata), "llama.attention.head_count_kv");
}

}  // namespace
}  // namespace sightline
