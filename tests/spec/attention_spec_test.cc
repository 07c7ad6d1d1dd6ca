// Attention specs and model specs as wholes: checks, words, counts.
#include "sightline/spec/attention_spec.h"

#include <gtest/gtest.h>

#include "sightline/spec/model.h"

namespace sightline {
namespace {

std::string message_of(const auto& result) {
  return result ? std::string("no error") : result.error().message;
}

// SmolLM2-135M as its config says.
ModelSpec smollm2() {
  LayerSpec layer;
  layer.attention.heads = {9, 3, 64, 64};
  layer.attention.rope.pairing = RopePairing::kInterleaved;
  layer.attention.rope.rotary_dim = 64;
  layer.attention.rope.theta = 100000.0;
  layer.ffn.ffn_dim = 1536;
  ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = 49152;
  spec.model_dim = 576;
  spec.context_length = 8192;
  spec.layers.assign(30, layer);
  spec.tied_head = true;
  return spec;
}

// GPT-2 small: 124,439,808 parameters are published for it.
ModelSpec gpt2() {
  LayerSpec layer;
  layer.attention.heads = {12, 12, 64, 64};
  layer.qkv_bias = layer.output_bias = true;
  layer.ffn = {3072, Activation::kGeluTanh, false, true};
  ModelSpec spec;
  spec.family = "gpt2";
  spec.vocab_size = 50257;
  spec.model_dim = 768;
  spec.context_length = spec.num_learned_positions = 1024;
  spec.norm = {NormKind::kLayer, 1e-5, true};
  spec.layers.assign(12, layer);
  spec.tied_head = true;
  return spec;
}

TEST(AttentionSpecTest, DescribesItselfInOneLine) {
  EXPECT_EQ(describe(smollm2().layers[0].attention),
            "GQA 9 query / 3 key heads of 64, causal, rope interleaved 64 theta 100000, scale 0.125");
  AttentionSpec spec;
  spec.heads = {8, 8, 96, 64};
  spec.mask = *parse_mask("causal & (first(4) | window(60))");
  spec.rope = {.pairing = RopePairing::kHalfSplit,
               .rotary_dim = 96,
               .scaling = {.kind = RopeScalingKind::kYarn, .factor = 4, .original_context = 4096},
               .cos_sin_magnitude = yarn_magnitude(4),
               .cache_stage = CacheStage::kBeforeRotation,
               .position_policy = PositionPolicy::kInCache};
  spec.score.softmax_scale = 0.1;
  spec.score.logit_softcap = 50;
  spec.score.sink_logits.assign(8, 0.0);
  EXPECT_TRUE(validate(spec)) << message_of(validate(spec));
  EXPECT_EQ(describe(spec),
            "MHA 8 query / 8 key heads of 96 (values 64), causal & (first(4) | window(60)), rope half_split "
            "96 theta "
            "10000 yarn x4 from 4096 magnitude 1.13863, keys cached before rotation, in-cache positions, "
            "scale 0.1, "
            "softcap 50, sink logits");
}

TEST(AttentionSpecTest, InCachePositionsNeedKeptFirstKeysAndAWindow) {
  AttentionSpec spec;
  spec.rope.position_policy = PositionPolicy::kInCache;
  for (const char* text : {"causal", "causal & window(8)", "causal & first(4) | all"}) {
    spec.mask = *parse_mask(text);
    EXPECT_NE(message_of(validate(spec)).find("in_cache"), std::string::npos) << text;
  }
  spec.mask = *parse_mask("causal & (first(4) | window(8))");
  EXPECT_TRUE(validate(spec));
}

TEST(AttentionSpecTest, PartsAreChecked) {
  AttentionSpec spec;
  spec.heads.num_kv_heads = 2;
  EXPECT_NE(message_of(validate(spec)).find("does not divide"), std::string::npos);
  spec = {};
  spec.mask.nodes.clear();
  EXPECT_NE(message_of(validate(spec)).find("mask"), std::string::npos);
  spec = {};
  spec.rope.pairing = RopePairing::kHalfSplit;
  EXPECT_NE(message_of(validate(spec)).find("rotary_dim = 0"), std::string::npos);
  spec = {};
  spec.score.sink_logits = {0, 0};
  EXPECT_NE(message_of(validate(spec)).find("sink_logits"), std::string::npos);
}

TEST(ModelSpecTest, ParametersAreThoseOfTheReleasedModels) {
  EXPECT_EQ(count_parameters(smollm2()).total(), 134515008);
  EXPECT_EQ(count_parameters(smollm2()).head, 0);
  EXPECT_EQ(count_parameters(gpt2()).total(), 124439808);
}

TEST(ModelSpecTest, ParametersOfNormsAndBiasesFollowTheirPlaces) {
  ModelSpec spec = smollm2();
  spec.layers.resize(1);
  const auto norms = [&] { return count_parameters(spec).norms; };
  EXPECT_EQ(norms(), 3 * 576);
  spec.residual = ResidualKind::kParallel;
  EXPECT_EQ(norms(), 2 * 576);
  spec.residual = ResidualKind::kSequential;
  spec.norm_placement = NormPlacement::kBoth;
  EXPECT_EQ(norms(), 5 * 576);
  spec.norm_placement = NormPlacement::kAfter;
  spec.layers[0].qk_norm = QkNorm::kPerHead;
  EXPECT_EQ(norms(), 3 * 576 + 2 * 64);
  spec.layers[0].qk_norm = QkNorm::kFullWidth;
  EXPECT_EQ(norms(), 3 * 576 + 9 * 64 + 3 * 64);
  const auto before = count_parameters(spec);
  spec.tied_head = false;
  spec.head_bias = true;
  EXPECT_EQ(count_parameters(spec).head, 49152 * 576 + 49152);
  spec.layers[0].qkv_bias = true;
  spec.layers[0].attention.score.sink_logits.assign(9, 0.0);
  EXPECT_EQ(count_parameters(spec).attention, before.attention + 9 * 64 + 2 * 3 * 64 + 9);
  spec.layers[0].ffn.bias = true;
  EXPECT_EQ(count_parameters(spec).ffn, before.ffn + 2 * 1536 + 576);
}

TEST(ModelSpecTest, CacheBytesCountKeyHeadsOnly) {
  // 30 layers * 3 key heads * (64 + 64) * 4 bytes.
  EXPECT_EQ(kv_cache_bytes(smollm2(), 1, 4, 4), 46080);
  EXPECT_EQ(kv_cache_bytes(smollm2(), 8192, 2, 2), 8192LL * 23040);
  ModelSpec spec = smollm2();
  spec.layers.resize(2);
  spec.layers[1].attention.heads = {9, 1, 128, 32};
  EXPECT_EQ(kv_cache_bytes(spec, 10, 4, 2), 10 * (3 * (64 * 4 + 64 * 2) + (128 * 4 + 32 * 2)));
}

TEST(ModelSpecTest, RefusalsNameTheFieldAndTheLayer) {
  EXPECT_TRUE(validate(smollm2()));
  EXPECT_TRUE(validate(gpt2()));
  const auto refused = [](auto change) {
    ModelSpec spec = smollm2();
    change(spec);
    return message_of(validate(spec));
  };
  EXPECT_NE(refused([](ModelSpec& s) { s.vocab_size = 0; }).find("vocab_size = 0"), std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.model_dim = -1; }).find("model_dim = -1"), std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.context_length = 0; }).find("context_length"), std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.layers.clear(); }).find("number of layers = 0"), std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.layers[7].ffn.ffn_dim = 0; }).find("layers[7].ffn.ffn_dim = 0"),
            std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) {
              s.layers[3].attention.heads.num_kv_heads = 4;
            }).find("layers[3].attention: heads: num_kv_heads = 4"),
            std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.norm.bias = true; }).find("norm.bias"), std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.norm.epsilon = -1; }).find("norm.epsilon"), std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.logit_scale = 1.0 / 0.0; }).find("logit_scale = inf"),
            std::string::npos);
  EXPECT_NE(refused([](ModelSpec& s) { s.final_logit_softcap = -30; }).find("final_logit_softcap"),
            std::string::npos);
}

}  // namespace
}  // namespace sightline
