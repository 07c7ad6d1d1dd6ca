// The trainable numbers of a ModelSpec in float64, by name. Also the shape of their gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/spec/model.h"

namespace sightline::reference {

/// y = W x + b.
struct LinearWeights {
  std::vector<double> weight;  ///< [out, in], row major
  std::vector<double> bias;    ///< [out] or empty
};
struct NormWeights {
  std::vector<double> weight;  ///< [width]; empty where the norm does not stand
  std::vector<double> bias;    ///< [width] or empty
};

struct LayerWeights {
  NormWeights attention_norm;       ///< before attention; the only one before under ResidualKind::kParallel
  LinearWeights q, k, v, o;         ///< q rows: head-major, in the pairing that the spec names
  NormWeights q_norm, k_norm;       ///< [qk_head_dim], or [num_heads * qk_head_dim] under kFullWidth
  NormWeights post_attention_norm;  ///< of the branch, before it is added
  NormWeights ffn_norm;
  LinearWeights gate, up, down;
  NormWeights post_ffn_norm;
};

struct ModelWeights {
  std::vector<double> embedding;  ///< [vocab_size, model_dim]
  std::vector<double> positions;  ///< [num_learned_positions, model_dim] or empty
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  LinearWeights head;  ///< weight empty when tied to the embedding
};

/// Weights of the right sizes, all 0. Requires validate(spec).
[[nodiscard]] ModelWeights zero_weights(const ModelSpec& spec);

/// Normal numbers for tests: matrices with deviation 1 / sqrt(in), norms near 1, biases near 0.
[[nodiscard]] ModelWeights random_weights(const ModelSpec& spec, std::uint64_t seed);

/// Calls f(name, vector) for each tensor that is not empty, in one fixed order. Names: "embedding",
/// "positions", "layer.0.q.weight", "layer.0.attention_norm.bias", ..., "final_norm.weight", "head.weight".
/// `Weights` is ModelWeights or const ModelWeights.
template <typename Weights, typename F>
void for_each(Weights& weights, F&& f) {
  const auto tensor = [&](const std::string& name, auto& x) {
    if (!x.empty()) f(name, x);
  };
  const auto pair = [&](const std::string& name, auto& part) {
    tensor(name + ".weight", part.weight);
    tensor(name + ".bias", part.bias);
  };
  tensor("embedding", weights.embedding);
  tensor("positions", weights.positions);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = "layer." + std::to_string(i) + ".";
    pair(prefix + "attention_norm", layer.attention_norm);
    pair(prefix + "q", layer.q);
    pair(prefix + "k", layer.k);
    pair(prefix + "v", layer.v);
    pair(prefix + "o", layer.o);
    pair(prefix + "q_norm", layer.q_norm);
    pair(prefix + "k_norm", layer.k_norm);
    pair(prefix + "post_attention_norm", layer.post_attention_norm);
    pair(prefix + "ffn_norm", layer.ffn_norm);
    pair(prefix + "gate", layer.gate);
    pair(prefix + "up", layer.up);
    pair(prefix + "down", layer.down);
    pair(prefix + "post_ffn_norm", layer.post_ffn_norm);
  }
  pair("final_norm", weights.final_norm);
  pair("head", weights.head);
}

}  // namespace sightline::reference
