#include "sightline/reference/model.h"

#include <gtest/gtest.h>

#include "reference/random_call.h"
#include "reference/step_sweep.h"

namespace sightline::reference {
namespace {

// Four-point differences in double reach about eps^(4/5) = 3e-13 times the size of the loss's derivatives.
constexpr double kVDepth = 1e-10;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Two tiny layers of the llama kind: RMS, SwiGLU, rotation, grouped heads.
ModelSpec llama_like() {
  ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = 5;
  spec.model_dim = 4;
  spec.context_length = 16;
  LayerSpec layer;
  layer.attention = small_spec("causal", {4, 2, 2, 3});
  layer.attention.rope = small_rope(RopePairing::kInterleaved, 2);
  layer.ffn = {.ffn_dim = 5, .activation = Activation::kSilu, .gated = true};
  spec.layers = {layer, layer};
  return spec;
}

/// Two tiny layers of the GPT-2 kind: learned positions, LayerNorm, biases, GELU, tied head.
ModelSpec gpt2_like(Activation activation) {
  ModelSpec spec = llama_like();
  spec.family = "gpt2";
  spec.num_learned_positions = 8;
  spec.norm = {.kind = NormKind::kLayer, .epsilon = 1e-5, .bias = true};
  spec.tied_head = true;
  for (LayerSpec& layer : spec.layers) {
    layer.attention = small_spec("causal", {2, 2, 2, 2});
    layer.qkv_bias = layer.output_bias = true;
    layer.ffn = {.ffn_dim = 6, .activation = activation, .gated = false, .bias = true};
  }
  return spec;
}

struct Batch {
  std::vector<std::int32_t> ids = {1, 4, 0, 2, 2, 3};
  std::vector<TokenCoord> coords = coords_range(0, 6);
  std::vector<std::int64_t> rope_pos;
  ModelInputs inputs() const {
    ModelInputs in;
    in.token_ids = ids;
    in.coords = coords;
    in.rope_pos = rope_pos;
    return in;
  }
  /// The second document begins at row 3.
  static Batch two_documents() {
    Batch batch;
    for (std::size_t i = 3; i < 6; ++i) {
      batch.coords[i].segment = 1;
      batch.coords[i].segment_start = 3;
    }
    return batch;
  }
};

ModelOutputs forward(const ModelSpec& spec, const ModelWeights& weights, const Batch& batch) {
  return model_forward(spec, weights, batch.inputs()).value();
}

double loss_of(const ModelSpec& spec, const ModelWeights& weights, const Batch& batch) {
  return mean_cross_entropy({}, batch.inputs(), {}, forward(spec, weights, batch).logits).value().loss;
}

/// Central differences of the loss along a direction of each tensor: each reaches the floor, and all together
/// show the V. (A tensor alone need not: the loss does not depend on a bias of k at all.)
void expect_v_for_every_weight(const ModelSpec& spec, const Batch& batch) {
  ModelWeights weights = random_weights(spec, 3);
  const ModelOutputs outputs = forward(spec, weights, batch);
  const LossOutputs loss = mean_cross_entropy({}, batch.inputs(), {}, outputs.logits).value();
  const ModelGradients grads = model_backward(spec, weights, batch.inputs(), outputs, loss.d_logits).value();
  std::vector<const std::vector<double>*> gradients;
  for_each(grads.weights, [&](const std::string&, const std::vector<double>& g) { gradients.push_back(&g); });
  Rng rng(9);
  std::size_t tensor = 0;
  StepSweep all;
  for_each(weights, [&](const std::string& name, std::vector<double>& x) {
    const StepSweep sweep =
        sweep_direction([&] { return loss_of(spec, weights, batch); }, x, *gradients[tensor++], rng);
    EXPECT_LT(sweep.best(), kVDepth) << name << "\n" << sweep.text();
    all.steps = sweep.steps;
    all.errors.resize(sweep.errors.size(), 0.0);
    for (std::size_t i = 0; i < all.errors.size(); ++i) {
      all.errors[i] = std::max(all.errors[i], sweep.errors[i]);
    }
  });
  EXPECT_EQ(tensor, gradients.size());
  EXPECT_TRUE(all.is_v(kVDepth)) << all.text();
}

TEST(ModelBackwardTest, LlamaLikeWithGroupedHeadsShowsTheVForEveryWeight) {
  expect_v_for_every_weight(llama_like(), Batch{});
  ModelSpec tied = llama_like();
  tied.tied_head = true;
  expect_v_for_every_weight(tied, Batch{});
}

TEST(ModelBackwardTest, Gpt2LikeShowsTheVForEveryWeight) {
  expect_v_for_every_weight(gpt2_like(Activation::kGeluTanh), Batch{});
  expect_v_for_every_weight(gpt2_like(Activation::kGeluErf), Batch{});
}

TEST(ModelBackwardTest, EverythingElseASpecCanSayShowsTheV) {
  ModelSpec spec = llama_like();
  spec.residual = ResidualKind::kParallel;
  spec.norm_placement = NormPlacement::kBoth;
  spec.embedding_scale = 2;
  spec.residual_scale = 0.7;
  spec.logit_scale = 1.5;
  spec.final_logit_softcap = 2;
  spec.head_bias = true;
  spec.layers[0].qk_norm = QkNorm::kPerHead;
  spec.layers[1].qk_norm = QkNorm::kFullWidth;
  spec.layers[1].attention.score.logit_softcap = 1;
  spec.layers[0].attention.score.sink_logits = {0.5, -1, 2, 0};
  expect_v_for_every_weight(spec, Batch{});
  spec.residual = ResidualKind::kSequential;
  spec.norm_placement = NormPlacement::kAfter;
  spec.norm.kind = NormKind::kLayer;
  expect_v_for_every_weight(spec, Batch{});
}

TEST(ModelBackwardTest, PackedDocumentsWithPaddingShowTheV) {
  ModelSpec spec = gpt2_like(Activation::kGeluTanh);
  for (LayerSpec& layer : spec.layers) layer.attention.mask = parse_mask("causal & segment").value();
  Batch batch = Batch::two_documents();
  batch.coords[5].valid = false;
  expect_v_for_every_weight(spec, batch);
}

TEST(ModelBackwardTest, SinkLogitsGetTheirGradient) {
  ModelSpec spec = llama_like();
  spec.layers[1].attention.score.sink_logits = {0.5, -1, 2, 0};
  const ModelWeights weights = random_weights(spec, 4);
  const Batch batch;
  const ModelOutputs outputs = forward(spec, weights, batch);
  const LossOutputs loss = mean_cross_entropy({}, batch.inputs(), {}, outputs.logits).value();
  const ModelGradients grads = model_backward(spec, weights, batch.inputs(), outputs, loss.d_logits).value();
  EXPECT_TRUE(grads.d_sink_logits[0].empty());
  std::vector<double>& sinks = spec.layers[1].attention.score.sink_logits;
  const StepSweep sweep =
      sweep_steps([&] { return loss_of(spec, weights, batch); }, sinks, grads.d_sink_logits[1]);
  EXPECT_TRUE(sweep.is_v(kVDepth)) << sweep.text();
}

TEST(ModelForwardTest, AFutureTokenChangesNoEarlierLogit) {
  for (const ModelSpec& spec : {llama_like(), gpt2_like(Activation::kGeluTanh)}) {
    const ModelWeights weights = random_weights(spec, 5);
    Batch batch;
    const std::vector<double> before = forward(spec, weights, batch).logits;
    batch.ids[4] = 0;
    const std::vector<double> after = forward(spec, weights, batch).logits;
    for (std::size_t i = 0; i < 4 * 5; ++i) EXPECT_EQ(after[i], before[i]);
    EXPECT_NE(after[4 * 5], before[4 * 5]);
  }
}

TEST(ModelForwardTest, PackedDocumentsEqualEachAloneUnderSegmentAndNotUnderPlainCausal) {
  for (const bool isolates : {true, false}) {
    ModelSpec spec = llama_like();
    for (LayerSpec& layer : spec.layers) {
      layer.attention.mask = parse_mask(isolates ? "causal & segment" : "causal").value();
    }
    const ModelWeights weights = random_weights(spec, 6);
    const Batch packed = Batch::two_documents();
    Batch second;
    second.ids = {2, 2, 3};
    second.coords = coords_range(0, 3);
    const std::vector<double> all = forward(spec, weights, packed).logits;
    const std::vector<double> alone = forward(spec, weights, second).logits;
    const double difference = max_difference({all.begin() + 3 * 5, all.end()}, alone);
    if (isolates) {
      EXPECT_LT(difference, 1e-13);
    } else {
      EXPECT_GT(difference, 1e-3);
    }
  }
}

TEST(ModelForwardTest, ConstantShiftOfRotaryPositionsIsInvisibleToPureRopeAndVisibleToLearnedPositions) {
  for (const bool learned : {false, true}) {
    const ModelSpec spec = learned ? gpt2_like(Activation::kGeluTanh) : llama_like();
    const ModelWeights weights = random_weights(spec, 7);
    Batch batch, shifted;
    shifted.rope_pos = {2, 3, 4, 5, 6, 7};
    const double difference =
        max_difference(forward(spec, weights, batch).logits, forward(spec, weights, shifted).logits);
    if (learned) {
      EXPECT_GT(difference, 1e-3);
    } else {
      EXPECT_LT(difference, 1e-13);
    }
  }
}

TEST(ModelForwardTest, LossIsTheMeanOverTargetsAndItsGradientSumsToZeroPerRow) {
  const Batch batch = Batch::two_documents();
  const std::vector<double> logits(6 * 5, 0.0);
  const LossOutputs loss = mean_cross_entropy({}, batch.inputs(), {}, logits).value();
  EXPECT_EQ(loss.num_targets, 4);  // not the last of either document
  EXPECT_NEAR(loss.loss, std::log(5.0), 1e-15);
  for (const std::int64_t row : {2, 5}) {
    for (int c = 0; c < 5; ++c) EXPECT_EQ(loss.d_logits[at(row * 5 + c)], 0.0);
  }
  EXPECT_NEAR(loss.d_logits[4], 0.25 * (0.2 - 1), 1e-15);  // row 0 predicts id 4
  EXPECT_NEAR(loss.d_logits[0], 0.25 * 0.2, 1e-15);
}

TEST(ModelForwardTest, LossRefusesIdsOutsideTheVocabularyAndSizesThatDisagree) {
  Batch batch;
  const std::vector<double> logits(6 * 5, 0.0);
  const auto message = [&](std::span<const double> x) {
    return mean_cross_entropy({}, batch.inputs(), {}, x).error().message;
  };
  EXPECT_EQ(message({}), "mean_cross_entropy: 6 token ids, 6 coords, 0 is_prompt, 0 logits");
  EXPECT_EQ(message(std::span(logits).first(29)),
            "mean_cross_entropy: 6 token ids, 6 coords, 0 is_prompt, 29 logits");
  for (const std::int32_t id : {5, -1}) {
    batch.ids[2] = id;
    EXPECT_EQ(message(logits), fmt::format("mean_cross_entropy: token_ids[2] = {} is outside [0, 5)", id));
  }
}

TEST(ModelForwardTest, CountsOfWeightsAgreeWithTheSpecs) {
  for (const ModelSpec& spec : {llama_like(), gpt2_like(Activation::kRelu)}) {
    const ModelWeights weights = zero_weights(spec);
    std::int64_t count = 0;
    for_each(weights,
             [&](const std::string&, const auto& x) { count += static_cast<std::int64_t>(x.size()); });
    EXPECT_EQ(count, count_parameters(spec).total());
  }
}

TEST(ModelForwardTest, WrongWeightsAndIdsAreRefusedByName) {
  const ModelSpec spec = gpt2_like(Activation::kGeluTanh);
  ModelWeights weights = zero_weights(spec);
  Batch batch;
  batch.ids[2] = 5;
  EXPECT_EQ(model_forward(spec, weights, batch.inputs()).error().message,
            "model_forward: token_ids[2] = 5 is outside [0, 5)");
  batch.ids[2] = 0;
  batch.rope_pos = {0, 1, 2, 3, 4, 8};
  EXPECT_EQ(model_forward(spec, weights, batch.inputs()).error().message,
            "model_forward: row 5 has learned position 8, the table has 8");
  weights.layers[1].k.weight.pop_back();
  EXPECT_EQ(model_forward(spec, weights, batch.inputs()).error().message,
            "model_forward: weight layer.1.k.weight with 15 entries, expected layer.1.k.weight with 16");
}

}  // namespace
}  // namespace sightline::reference
