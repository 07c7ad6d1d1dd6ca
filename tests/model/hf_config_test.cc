// config.json of llama, mistral and gpt2 becomes a spec; what is unknown or out of range is refused by name.
#include <gtest/gtest.h>

#include <cmath>

#include "model/families/family.h"
#include "model/model_fixtures.h"

namespace sightline {
namespace {

using testing::TempFolder;
using testing::TestModel;
using testing::with_member;
using testing::without_member;

const Assumption* find_assumption(const FamilyModel& model, const std::string& key) {
  for (const Assumption& a : model.assumptions) {
    if (a.key == key) return &a;
  }
  return nullptr;
}

void expect_refused(const Result<FamilyModel>& result, const std::string& named) {
  ASSERT_FALSE(result) << "accepted, but should name " << named;
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidContent) << result.error().message;
  EXPECT_NE(result.error().message.find(named), std::string::npos) << result.error().message;
}

class HfLlamaTest : public ::testing::Test {
 protected:
  Result<FamilyModel> read(const Json& config, const LoadOptions& options = {}) {
    testing::write_llama_hf(folder_.file("model"), model_, config);
    SIGHTLINE_TRY(const ModelFiles files, open_model_files(folder_.file("model"), options));
    return read_family(files, options);
  }
  Result<FamilyModel> read_scaling(JsonObject members) {
    return read(with_member(config_, "rope_scaling", std::move(members)));
  }

  TempFolder folder_;
  TestModel model_ = testing::random_model(testing::small_llama_spec(), 2);
  Json config_ = testing::llama_config(model_.spec);
};

TEST_F(HfLlamaTest, KeysBecomeTheSpecOfTheModelThatWasWritten) {
  const auto model = read(config_);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec, model_.spec) << to_json(model->spec).dump(1);
  EXPECT_TRUE(model->assumptions.empty()) << model->assumptions[0].key;
  EXPECT_NE(model->qk_row_order.find("halves"), std::string::npos);
}

TEST_F(HfLlamaTest, ValuesOutOfRangeAndMissingKeysAreRefusedByKey) {
  const std::pair<const char*, Json> cases[] = {
      {"num_hidden_layers", 0},
      {"num_hidden_layers", "3"},
      {"num_hidden_layers", 3.5},
      {"hidden_size", -24},
      {"num_attention_heads", 0},
      {"num_key_value_heads", 3},
      {"num_key_value_heads", 8},
      {"head_dim", 0},
      {"intermediate_size", 0},
      {"vocab_size", 0},
      {"rms_norm_eps", 0.0},
      {"rms_norm_eps", -1e-5},
      {"rope_theta", 0},
      {"rope_theta", -1},
      {"max_position_embeddings", 0},
      {"hidden_act", "quick_gelu"},
      {"hidden_act", 3},
      {"attention_bias", 1},
      {"partial_rotary_factor", 0.1},
      {"partial_rotary_factor", 1.5},
      {"sliding_window", 100},
      {"query_pre_attn_scalar", 256},
      {"layer_types", JsonArray{"full_attention"}},
      {"rope_interleaved", true},
      {"quantization_config", JsonObject{{"bits", 4}}},
  };
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(fmt::format("{} = {}", key, value.dump()));
    expect_refused(read(with_member(config_, key, value)), key);
  }
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
                          "vocab_size", "rms_norm_eps", "max_position_embeddings", "model_type"}) {
    SCOPED_TRACE(key);
    expect_refused(read(without_member(config_, key)), key);
  }
  expect_refused(read(with_member(config_, "model_type", "qwen9")), "qwen9");
}

TEST_F(HfLlamaTest, HeadCountsThatTheWeightsDoNotHaveAreRefusedWithBothShapes) {
  expect_refused(read(with_member(config_, "num_key_value_heads", 4)), "[32, 24], the file has [16, 24]");
  expect_refused(read(with_member(config_, "num_attention_heads", 2)), "[16, 24], the file has [32, 24]");
}

TEST_F(HfLlamaTest, DefaultsOfTransformersAreNoted) {
  Json config = config_;
  for (const char* key : {"rope_theta", "hidden_act", "tie_word_embeddings"})
    config = without_member(config, key);
  const auto model = read(config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.theta, 10000);
  for (const char* key : {"rope_theta", "hidden_act", "tie_word_embeddings"}) {
    EXPECT_NE(find_assumption(*model, key), nullptr) << key;
  }
}

TEST_F(HfLlamaTest, EveryRopeTypeBecomesItsSpec) {
  auto model = read_scaling({{"type", "linear"}, {"factor", 2}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.factor, 2);

  model = read_scaling({{"rope_type", "dynamic"}, {"factor", 2.5}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kDynamicNtk);
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.original_context, 256);
  EXPECT_NE(find_assumption(*model, "rope_type dynamic"), nullptr);

  model = read_scaling({{"rope_type", "yarn"},
                        {"factor", 4.0},
                        {"original_max_position_embeddings", 64},
                        {"truncate", false},
                        {"beta_fast", 16},
                        {"beta_slow", 2}});
  ASSERT_TRUE(model) << model.error().message;
  const RopeSpec yarn = model->spec.layers[0].attention.rope;
  EXPECT_EQ(yarn.scaling.kind, RopeScalingKind::kYarn);
  EXPECT_EQ(yarn.scaling.original_context, 64);
  EXPECT_FALSE(yarn.scaling.truncate);
  EXPECT_EQ(yarn.scaling.beta_fast, 16);
  EXPECT_EQ(yarn.scaling.beta_slow, 2);
  EXPECT_DOUBLE_EQ(yarn.cos_sin_magnitude, 0.1 * std::log(4.0) + 1);
  model = read_scaling({{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 0.9}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.cos_sin_magnitude, 0.9);
  model = read_scaling({{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale", 2.0}, {"mscale_all_dim", 1.0}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_DOUBLE_EQ(model->spec.layers[0].attention.rope.cos_sin_magnitude,
                   (0.2 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1));

  model = read_scaling({{"rope_type", "longrope"},
                        {"short_factor", JsonArray{1, 1, 1.5, 2}},
                        {"long_factor", JsonArray{1, 2, 3, 4}},
                        {"original_max_position_embeddings", 64}});
  ASSERT_TRUE(model) << model.error().message;
  const RopeSpec longrope = model->spec.layers[0].attention.rope;
  EXPECT_EQ(longrope.scaling.short_divisors, (std::vector<double>{1, 1, 1.5, 2}));
  EXPECT_EQ(longrope.scaling.long_divisors, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_DOUBLE_EQ(longrope.cos_sin_magnitude, std::sqrt(1 + std::log(4.0) / std::log(64.0)));

  model = read_scaling({{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 64}});
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.kind, RopeScalingKind::kLlama3);
  EXPECT_EQ(model->spec.layers[0].attention.rope.scaling.high_freq_factor, 4);
}

TEST_F(HfLlamaTest, UnknownRopeTypesAndMembersAreRefusedNamingTheOption) {
  expect_refused(read_scaling({{"rope_type", "spiral"}, {"factor", 2}}), "--rope-scaling");
  expect_refused(read_scaling({{"rope_type", "spiral"}, {"factor", 2}}), "spiral");
  expect_refused(read_scaling({{"factor", 2}}), "rope_type");
  expect_refused(read_scaling({{"rope_type", "linear"}, {"factor", 2}, {"twist", 1}}), "twist");
  expect_refused(read_scaling({{"rope_type", "linear"}, {"factor", 0}}), "factor");
  expect_refused(read_scaling({{"rope_type", "llama3"}, {"factor", 8}}), "low_freq_factor");
  expect_refused(read_scaling({{"rope_type", "llama3"}, {"factor", 8}}), "--rope-scaling");
  expect_refused(read_scaling({{"rope_type", "longrope"},
                               {"short_factor", JsonArray{1, 1}},
                               {"long_factor", JsonArray{1, 2, 3, 4}},
                               {"original_max_position_embeddings", 64}}),
                 "divisors");
}

TEST_F(HfLlamaTest, NewFormOfRopeParametersIsRead) {
  Json config = without_member(without_member(config_, "rope_theta"), "rope_scaling");
  config.set("rope_parameters", JsonObject{{"rope_type", "default"}, {"rope_theta", 5000.0}});
  auto model = read(config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(model->spec.layers[0].attention.rope.theta, 5000);
  config = with_member(config, "rope_parameters",
                       JsonObject{{"full_attention", JsonObject{{"rope_type", "default"}}}});
  expect_refused(read(config), "full_attention");
}

TEST_F(HfLlamaTest, RopeStatedInBothFormsIsRefusedUnlessTheCallerStatesIt) {
  // transformers lets the old form win; whoever edited one of them meant the other.
  Json config = with_member(config_, "rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 4}});
  config.set("rope_parameters", JsonObject{{"rope_type", "default"}});
  expect_refused(read(config), "rope_scaling");
  config =
      with_member(config_, "rope_parameters", JsonObject{{"rope_type", "default"}, {"rope_theta", 5000.0}});
  expect_refused(read(config), "rope_theta");
}

TEST_F(HfLlamaTest, RopeParametersByLayerTypeAreRefusedAlsoBesideAStatedScaling) {
  Json config = without_member(without_member(config_, "rope_theta"), "rope_scaling");
  config.set("rope_parameters",
             JsonObject{{"full_attention", JsonObject{{"rope_type", "default"}, {"rope_theta", 5000.0}}}});
  LoadOptions options;
  options.rope_scaling.emplace();
  // The base stands in there too, and 10000 would be a guess.
  expect_refused(read(config, options), "full_attention");
}

TEST_F(HfLlamaTest, AStatedWindowReplacesTheLayerTypes) {
  LoadOptions options;
  options.window = 5;
  const auto model = read(
      with_member(config_, "layer_types", JsonArray{"sliding_attention", "full_attention", "full_attention"}),
      options);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[1].attention.mask), "causal & window(5)");
}

TEST_F(HfLlamaTest, CodeOfItsOwnIsRefusedUntilItIsStatedToBeWithoutMeaning) {
  const Json config = with_member(config_, "auto_map", JsonObject{{"AutoModel", "modeling_own.OwnModel"}});
  expect_refused(read(config), "auto_map");
  LoadOptions options;
  options.ignored_keys = {"auto_map"};
  EXPECT_TRUE(read(config, options));
}

// transformers: absent means 8 for mistral, null means as many as query heads.
TEST_F(HfLlamaTest, MistralWithNullKeyHeadsHasAsManyAsQueryHeads) {
  Json config = with_member(with_member(config_, "model_type", "mistral"), "sliding_window", Json());
  expect_refused(read(with_member(config, "num_key_value_heads", Json())), "[32, 24], the file has [16, 24]");
  expect_refused(read(without_member(config, "num_key_value_heads")), "8 does not divide");
}

TEST_F(HfLlamaTest, MistralNeedsItsWindowSaid) {
  Json config = with_member(config_, "model_type", "mistral");
  expect_refused(read(config), "--window");
  auto model = read(with_member(config, "sliding_window", Json()));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[0].attention.mask), "causal");
  model = read(with_member(config, "sliding_window", 16));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[0].attention.mask), "causal & window(16)");
  LoadOptions options;
  options.window = 5;
  model = read(config, options);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[0].attention.mask), "causal & window(5)");
  config = with_member(config, "sliding_window", 16);
  config.set("layer_types", JsonArray{"sliding_attention", "full_attention", "sliding_attention"});
  model = read(config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(to_string(model->spec.layers[1].attention.mask), "causal");
  EXPECT_EQ(to_string(model->spec.layers[2].attention.mask), "causal & window(16)");
}

class HfGpt2Test : public ::testing::Test {
 protected:
  Result<FamilyModel> read(const Json& config, const LoadOptions& options = {},
                           const std::string& prefix = "transformer.") {
    testing::write_gpt2_hf(folder_.file("model"), model_, config, prefix);
    SIGHTLINE_TRY(const ModelFiles files, open_model_files(folder_.file("model"), options));
    return read_family(files, options);
  }

  TempFolder folder_;
  TestModel model_ = testing::random_model(testing::small_gpt2_spec(), 3);
  Json config_ = testing::gpt2_config(model_.spec);
};

TEST_F(HfGpt2Test, KeysBecomeTheSpecWithAndWithoutPrefix) {
  for (const char* prefix : {"transformer.", ""}) {
    const auto model = read(config_, {}, prefix);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->spec, model_.spec) << to_json(model->spec).dump(1);
  }
}

TEST_F(HfGpt2Test, ValuesOutOfRangeAreRefusedByKey) {
  const std::pair<const char*, Json> cases[] = {
      {"n_layer", 0},
      {"n_embd", 25},
      {"n_head", 5},
      {"n_positions", 0},
      {"n_ctx", 41},
      {"vocab_size", 0},
      {"layer_norm_epsilon", 0.0},
      {"activation_function", "quick_gelu"},
      {"add_cross_attention", true},
      {"rotary", true},
      {"n_inner", 0},
  };
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(fmt::format("{} = {}", key, value.dump()));
    expect_refused(read(with_member(config_, key, value)), key);
  }
  expect_refused(read(with_member(config_, "n_positions", 41)), "[41, 24], the file has [40, 24]");
  expect_refused(read(with_member(config_, "n_inner", 95)), "[24, 95], the file has [24, 96]");
}

TEST_F(HfGpt2Test, ScaleByLayerIsAValueOfEachLayer) {
  const auto model = read(with_member(config_, "scale_attn_by_inverse_layer_idx", true));
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_DOUBLE_EQ(*model->spec.layers[0].attention.score.softmax_scale, 1 / std::sqrt(8.0));
  EXPECT_DOUBLE_EQ(*model->spec.layers[1].attention.score.softmax_scale, 0.5 / std::sqrt(8.0));
}

TEST_F(HfGpt2Test, TheHeadIsTiedWhereTheConfigDoesNotSay) {
  // transformers' default; a stored copy of the head is not used then.
  const Json config = without_member(config_, "tie_word_embeddings");
  auto model = read(config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->spec.tied_head);
  EXPECT_NE(find_assumption(*model, "tie_word_embeddings"), nullptr);
  model_.tensors["head.weight"] = model_.tensors["embedding.weight"];
  model = read(config);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_TRUE(model->spec.tied_head);
  EXPECT_NE(find_assumption(*model, "lm_head.weight"), nullptr);
}

TEST_F(HfGpt2Test, StatementsAboutRotationContradictAModelWithoutIt) {
  LoadOptions options;
  options.rope_theta = 500;
  const auto model = read(config_, options);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kConfiguration);
}

}  // namespace
}  // namespace sightline
