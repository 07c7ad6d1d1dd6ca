#include "sightline/reference/model_weights.h"

#include <cmath>

#include "sightline/base/rng.h"

namespace sightline::reference {
namespace {

std::size_t size_of(std::int64_t a, std::int64_t b = 1) { return static_cast<std::size_t>(a * b); }

LinearWeights zero_linear(std::int64_t out, std::int64_t in, bool bias) {
  LinearWeights linear;
  linear.weight.resize(size_of(out, in), 0.0);
  if (bias) linear.bias.resize(size_of(out), 0.0);
  return linear;
}

NormWeights zero_norm(std::int64_t width, bool bias) {
  NormWeights norm;
  norm.weight.resize(size_of(width), 0.0);
  if (bias) norm.bias.resize(size_of(width), 0.0);
  return norm;
}

LayerWeights zero_layer(const ModelSpec& spec, const LayerSpec& layer) {
  const HeadSpec& heads = layer.attention.heads;
  const std::int64_t dim = spec.model_dim;
  const std::int64_t q_width = std::int64_t{heads.num_q_heads} * heads.qk_head_dim;
  const std::int64_t k_width = std::int64_t{heads.num_kv_heads} * heads.qk_head_dim;
  LayerWeights w;
  w.q = zero_linear(q_width, dim, layer.qkv_bias);
  w.k = zero_linear(k_width, dim, layer.qkv_bias);
  w.v = zero_linear(std::int64_t{heads.num_kv_heads} * heads.v_head_dim, dim, layer.qkv_bias);
  w.o = zero_linear(dim, std::int64_t{heads.num_q_heads} * heads.v_head_dim, layer.output_bias);
  if (layer.qk_norm == QkNorm::kPerHead) w.q_norm = w.k_norm = zero_norm(heads.qk_head_dim, false);
  if (layer.qk_norm == QkNorm::kFullWidth) {
    w.q_norm = zero_norm(q_width, false);
    w.k_norm = zero_norm(k_width, false);
  }
  if (layer.ffn.gated) w.gate = zero_linear(layer.ffn.ffn_dim, dim, layer.ffn.bias);
  w.up = zero_linear(layer.ffn.ffn_dim, dim, layer.ffn.bias);
  w.down = zero_linear(dim, layer.ffn.ffn_dim, layer.ffn.bias);
  const NormWeights norm = zero_norm(dim, spec.norm.bias);
  if (spec.norm_placement != NormPlacement::kAfter) {
    w.attention_norm = norm;
    if (spec.residual == ResidualKind::kSequential) w.ffn_norm = norm;
  }
  if (spec.norm_placement != NormPlacement::kBefore) w.post_attention_norm = w.post_ffn_norm = norm;
  return w;
}

}  // namespace

ModelWeights zero_weights(const ModelSpec& spec) {
  ModelWeights w;
  w.embedding.resize(size_of(spec.vocab_size, spec.model_dim), 0.0);
  w.positions.resize(size_of(spec.num_learned_positions, spec.model_dim), 0.0);
  for (const LayerSpec& layer : spec.layers) w.layers.push_back(zero_layer(spec, layer));
  w.final_norm = zero_norm(spec.model_dim, spec.norm.bias);
  w.head = zero_linear(spec.vocab_size, spec.model_dim, spec.head_bias);
  if (spec.tied_head) w.head.weight.clear();
  return w;
}

ModelWeights random_weights(const ModelSpec& spec, std::uint64_t seed) {
  ModelWeights weights = zero_weights(spec);
  Rng rng(seed);
  for_each(weights, [&](const std::string& name, std::vector<double>& x) {
    const bool is_norm = name.find("norm") != std::string::npos;
    const bool is_bias = name.ends_with(".bias");
    const double deviation = is_norm || is_bias ? 0.2 : 1 / std::sqrt(static_cast<double>(spec.model_dim));
    const double mean = is_norm && !is_bias ? 1 : 0;
    for (double& value : x) value = mean + deviation * rng.next_normal();
  });
  return weights;
}

}  // namespace sightline::reference
