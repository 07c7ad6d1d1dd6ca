#include <cmath>

#include "layers.h"
#include "model_call.h"

namespace sightline::reference {
namespace {

/// Gradients of one layer, added to `d` (weights); returns the gradient of the layer's input.
Rows ffn_backward(const ModelSpec& spec, const LayerSpec& layer, const LayerWeights& w,
                  const LayerActivations& a, const Rows& d_output, LayerWeights& d) {
  Rows d_branch = d_output;
  for (double& x : d_branch) x *= spec.residual_scale;
  d_branch = norm_backward(spec.norm, w.post_ffn_norm, a.ffn_branch, d_branch, d.post_ffn_norm);
  const Rows d_hidden = linear_backward(w.down, a.hidden, d_branch, layer.ffn.ffn_dim, d.down);
  Rows d_gate(a.gate.size()), d_up(a.up.size());
  for (std::size_t i = 0; i < d_hidden.size(); ++i) {
    if (layer.ffn.gated) {
      d_gate[i] = d_hidden[i] * a.up[i] * activate_slope(layer.ffn.activation, a.gate[i]);
      d_up[i] = d_hidden[i] * activate(layer.ffn.activation, a.gate[i]);
    } else {
      d_up[i] = d_hidden[i] * activate_slope(layer.ffn.activation, a.up[i]);
    }
  }
  Rows d_ffn_input = linear_backward(w.up, a.ffn_input, d_up, spec.model_dim, d.up);
  if (layer.ffn.gated)
    add_scaled(d_ffn_input, linear_backward(w.gate, a.ffn_input, d_gate, spec.model_dim, d.gate), 1);
  return d_ffn_input;
}

Result<AttentionGradients> layer_attention_backward(const LayerSpec& layer, const ModelInputs& inputs,
                                                    const LayerActivations& a, const Rows& d_attention) {
  const HeadSpec& heads = layer.attention.heads;
  const auto num_tokens = static_cast<std::int64_t>(inputs.token_ids.size());
  AttentionUpstream upstream;
  upstream.d_out =
      dense_view<const double, 3>(d_attention.data(), {num_tokens, heads.num_q_heads, heads.v_head_dim});
  return attention_backward(layer.attention, layer_attention_inputs(heads, inputs, a), upstream);
}

/// One layer: adds to `grads`, returns the gradient of its input.
Result<Rows> layer_backward(const ModelSpec& spec, std::size_t layer_idx, const ModelWeights& weights,
                            const ModelInputs& inputs, const LayerActivations& a, const Rows& d_output,
                            ModelGradients& grads) {
  const LayerSpec& layer = spec.layers[layer_idx];
  const LayerWeights& w = weights.layers[layer_idx];
  LayerWeights& d = grads.weights.layers[layer_idx];
  const HeadSpec& heads = layer.attention.heads;
  const bool parallel = spec.residual == ResidualKind::kParallel;

  const Rows d_ffn_input = ffn_backward(spec, layer, w, a, d_output, d);
  Rows d_middle = d_output;
  if (!parallel)
    add_scaled(d_middle, norm_backward(spec.norm, w.ffn_norm, a.middle, d_ffn_input, d.ffn_norm), 1);

  Rows d_branch = d_middle;
  for (double& x : d_branch) x *= spec.residual_scale;
  d_branch =
      norm_backward(spec.norm, w.post_attention_norm, a.attention_branch, d_branch, d.post_attention_norm);
  const Rows d_attention =
      linear_backward(w.o, a.attention, d_branch, std::int64_t{heads.num_q_heads} * heads.v_head_dim, d.o);
  SIGHTLINE_TRY(AttentionGradients attention, layer_attention_backward(layer, inputs, a, d_attention));
  grads.d_alibi_slopes[layer_idx] = attention.d_alibi_slopes;
  grads.d_sink_logits[layer_idx] = attention.d_sink_logits;
  if (layer.qk_norm != QkNorm::kNone) {
    attention.d_q = norm_backward(spec.norm, w.q_norm, a.q_before_norm, attention.d_q, d.q_norm);
    attention.d_k = norm_backward(spec.norm, w.k_norm, a.k_before_norm, attention.d_k, d.k_norm);
  }
  Rows d_attention_input = linear_backward(w.q, a.attention_input, attention.d_q, spec.model_dim, d.q);
  add_scaled(d_attention_input, linear_backward(w.k, a.attention_input, attention.d_k, spec.model_dim, d.k),
             1);
  add_scaled(d_attention_input, linear_backward(w.v, a.attention_input, attention.d_v, spec.model_dim, d.v),
             1);
  if (parallel) add_scaled(d_attention_input, d_ffn_input, 1);
  add_scaled(d_middle,
             norm_backward(spec.norm, w.attention_norm, a.input, d_attention_input, d.attention_norm), 1);
  return d_middle;
}

/// Through softcap, scale and head; returns the gradient of the final norm's output.
Rows head_backward(const ModelSpec& spec, const ModelWeights& weights, const ModelOutputs& outputs,
                   std::span<const double> d_logits, ModelWeights& d) {
  Rows d_head(d_logits.begin(), d_logits.end());
  for (std::size_t i = 0; i < d_head.size(); ++i) {
    const double cap = spec.final_logit_softcap;
    if (cap > 0) d_head[i] *= 1 - std::pow(outputs.logits[i] / cap, 2);
    d_head[i] *= spec.logit_scale;
  }
  const LinearWeights head{head_weight(weights), weights.head.bias};
  LinearWeights d_linear{std::vector<double>(head.weight.size(), 0.0),
                         std::vector<double>(head.bias.size(), 0.0)};
  Rows d_x = linear_backward(head, outputs.final_norm, d_head, spec.model_dim, d_linear);
  add_scaled(spec.tied_head ? d.embedding : d.head.weight, d_linear.weight, 1);
  add_scaled(d.head.bias, d_linear.bias, 1);
  return d_x;
}

void embed_backward(const ModelSpec& spec, const ModelInputs& inputs, const Rows& d_x, ModelWeights& d) {
  const auto dim = static_cast<std::size_t>(spec.model_dim);
  for (std::size_t i = 0; i < inputs.token_ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(inputs.token_ids[i]);
    for (std::size_t c = 0; c < dim; ++c)
      d.embedding[id * dim + c] += spec.embedding_scale * d_x[i * dim + c];
    if (d.positions.empty() || !inputs.coords[i].valid) continue;
    const auto p = static_cast<std::size_t>(model_rope_pos(inputs, i));
    for (std::size_t c = 0; c < dim; ++c) d.positions[p * dim + c] += d_x[i * dim + c];
  }
}

}  // namespace

Result<ModelGradients> model_backward(const ModelSpec& spec, const ModelWeights& weights,
                                      const ModelInputs& inputs, const ModelOutputs& outputs,
                                      std::span<const double> d_logits) {
  SIGHTLINE_CHECK(check_model_call(spec, weights, inputs, "model_backward"));
  if (d_logits.size() != outputs.logits.size() || outputs.layers.size() != spec.layers.size()) {
    return fail(ErrorKind::kInvalidArgument,
                "model_backward: {} gradients for {} logits, {} layers kept of {}", d_logits.size(),
                outputs.logits.size(), outputs.layers.size(), spec.layers.size());
  }
  const std::size_t num_layers = spec.layers.size();
  ModelGradients grads{zero_weights(spec), {}, {}};
  grads.d_alibi_slopes.resize(num_layers);
  grads.d_sink_logits.resize(num_layers);

  Rows d_x = head_backward(spec, weights, outputs, d_logits, grads.weights);
  d_x = norm_backward(spec.norm, weights.final_norm, outputs.layers.back().output, d_x,
                      grads.weights.final_norm);
  for (std::size_t i = num_layers; i-- > 0;) {
    SIGHTLINE_TRY(d_x, layer_backward(spec, i, weights, inputs, outputs.layers[i], d_x, grads));
  }
  embed_backward(spec, inputs, d_x, grads.weights);
  return grads;
}

}  // namespace sightline::reference
