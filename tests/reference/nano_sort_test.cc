// The oracle against intermediate tensors that others published for a small GPT-2 type model.
#include <gtest/gtest.h>

#include "reference/random_call.h"
#include "sightline/reference/model.h"
#include "support/nano_sort.h"

namespace sightline::reference {
namespace {

using testing::kNanoSortPrecision;

class NanoSortTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto files = testing::open_nano_sort();
    if (!files) GTEST_SKIP() << "SIGHTLINE_TEST_DATA: nano-sort/model.json or partials.json is not there";
    model_ = files->model;
    partials_ = files->partials;
    make_spec();
    make_weights();
    ids_ = partial("idx");
  }

  std::vector<double> partial(const std::string& name) const { return tensor(partials_, name); }

  /// The oracle on sequence b, with everything it keeps.
  ModelOutputs run(std::int64_t b) const {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < kLength; ++i)
      ids.push_back(static_cast<std::int32_t>(ids_[static_cast<std::size_t>(b * kLength + i)]));
    const std::vector<TokenCoord> coords = coords_range(0, kLength);
    ModelInputs inputs;
    inputs.token_ids = ids;
    inputs.coords = coords;
    return model_forward(spec_, weights_, inputs).value();
  }

  /// Sequence b of a published tensor [3, ...].
  static std::vector<double> sequence(const std::vector<double>& all, std::int64_t b) {
    const auto size = static_cast<std::int64_t>(all.size()) / kBatch;
    return {all.begin() + b * size, all.begin() + (b + 1) * size};
  }

  /// [heads, length, dim] as published, from [length, heads, dim] as we have it.
  static std::vector<double> heads_first(const std::vector<double>& x) {
    const auto dim = static_cast<std::int64_t>(x.size()) / (kLength * kHeads);
    std::vector<double> y;
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kLength; ++i) {
        for (std::int64_t c = 0; c < dim; ++c)
          y.push_back(x[static_cast<std::size_t>((i * kHeads + h) * dim + c)]);
      }
    }
    return y;
  }

  static constexpr std::int64_t kBatch = 3, kLength = 11, kHeads = 3, kDim = 48, kHeadDim = 16;
  ModelSpec spec_;
  ModelWeights weights_;

 private:
  static std::vector<double> tensor(const Json& file, const std::string& name) {
    const Json* found = file.find(name);
    if (found == nullptr || found->find("data") == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    const std::vector<float> values = testing::read_nano_sort_tensor(*found).values;
    return {values.begin(), values.end()};
  }

  void make_spec() {
    spec_.vocab_size = 3;
    spec_.model_dim = kDim;
    spec_.context_length = spec_.num_learned_positions = kLength;
    spec_.norm = {.kind = NormKind::kLayer, .epsilon = 1e-5, .bias = true};
    LayerSpec layer;
    layer.attention.heads = {kHeads, kHeads, kHeadDim, kHeadDim};
    layer.qkv_bias = layer.output_bias = true;
    layer.ffn = {.ffn_dim = 4 * kDim, .activation = Activation::kGeluTanh, .gated = false, .bias = true};
    spec_.layers = {layer, layer, layer};
  }

  void make_weights() {
    const auto get = [&](const std::string& name) { return tensor(model_, name); };
    weights_ = zero_weights(spec_);
    weights_.embedding = get("transformer.wte.weight");
    weights_.positions = get("transformer.wpe.weight");
    for (std::size_t i = 0; i < 3; ++i) {
      const std::string prefix = "transformer.h." + std::to_string(i) + ".";
      LayerWeights& layer = weights_.layers[i];
      const auto fill = [&](auto& part, const std::string& name) {
        part.weight = get(prefix + name + ".weight");
        part.bias = get(prefix + name + ".bias");
      };
      fill(layer.attention_norm, "ln_1");
      fill(layer.ffn_norm, "ln_2");
      fill(layer.o, "attn.c_proj");
      fill(layer.up, "mlp.c_fc");
      fill(layer.down, "mlp.c_proj");
      LinearWeights fused;
      fill(fused, "attn.c_attn");
      LinearWeights* parts[] = {&layer.q, &layer.k, &layer.v};
      for (std::int64_t p = 0; p < 3; ++p) {
        parts[p]->weight.assign(fused.weight.begin() + p * kDim * kDim,
                                fused.weight.begin() + (p + 1) * kDim * kDim);
        parts[p]->bias.assign(fused.bias.begin() + p * kDim, fused.bias.begin() + (p + 1) * kDim);
      }
    }
    weights_.final_norm = {get("transformer.ln_f.weight"), get("transformer.ln_f.bias")};
    weights_.head.weight = get("lm_head.weight");
  }

  Json model_, partials_;
  std::vector<double> ids_;
};

TEST_F(NanoSortTest, QueriesKeysAndValuesOfTheFirstLayerAreAsPublished) {
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const LayerActivations layer = run(b).layers[0];
    EXPECT_LT(max_difference(heads_first(layer.q), sequence(partial("q"), b)), kNanoSortPrecision);
    EXPECT_LT(max_difference(heads_first(layer.k), sequence(partial("k"), b)), kNanoSortPrecision);
    EXPECT_LT(max_difference(heads_first(layer.v), sequence(partial("v"), b)), kNanoSortPrecision);
  }
}

TEST_F(NanoSortTest, ScoresWeightsAndOutputOfTheFirstLayerAreAsPublished) {
  const std::vector<TokenCoord> coords = coords_range(0, kLength);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const LayerActivations layer = run(b).layers[0];
    AttentionInputs in;
    in.q = in.k = dense_view(layer.q.data(), std::array<std::int64_t, 3>{kLength, kHeads, kHeadDim});
    in.k.data = layer.k.data();
    in.v = in.k;
    in.v.data = layer.v.data();
    in.q_coords = in.kv_coords = coords;
    const AttentionOutputs outputs =
        attention_forward(spec_.layers[0].attention, in, {.weights = true, .scores = true}).value();
    EXPECT_LT(max_difference(outputs.weights, sequence(partial("attSm"), b)), kNanoSortPrecision);
    EXPECT_LT(max_difference(outputs.out, sequence(partial("y"), b)), kNanoSortPrecision);
    const std::vector<double> published = sequence(partial("att"), b);
    ASSERT_EQ(published.size(), outputs.scores.size());
    for (std::size_t i = 0; i < published.size(); ++i) {
      if (std::isfinite(published[i]) && std::isfinite(outputs.scores[i])) {
        EXPECT_NEAR(outputs.scores[i], published[i], kNanoSortPrecision);
      }
    }
  }
}

TEST_F(NanoSortTest, OutputsOfAllBlocksAndLogitsAreAsPublished) {
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const ModelOutputs outputs = run(b);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_LT(max_difference(outputs.layers[i].output, sequence(partial("block" + std::to_string(i)), b)),
                kNanoSortPrecision);
    }
    EXPECT_LT(max_difference(outputs.final_norm, sequence(partial("ln_f"), b)), kNanoSortPrecision);
    EXPECT_LT(max_difference(outputs.logits, sequence(partial("lm_head"), b)), kNanoSortPrecision);
  }
}

}  // namespace
}  // namespace sightline::reference
