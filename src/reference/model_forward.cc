#include <cmath>

#include "layers.h"
#include "model_call.h"

namespace sightline::reference {
namespace {

Rows embed(const ModelSpec& spec, const ModelWeights& weights, const ModelInputs& inputs) {
  const auto dim = static_cast<std::size_t>(spec.model_dim);
  Rows x(inputs.token_ids.size() * dim);
  for (std::size_t i = 0; i < inputs.token_ids.size(); ++i) {
    const auto id = static_cast<std::size_t>(inputs.token_ids[i]);
    for (std::size_t c = 0; c < dim; ++c)
      x[i * dim + c] = spec.embedding_scale * weights.embedding[id * dim + c];
    if (weights.positions.empty() || !inputs.coords[i].valid) continue;
    const auto p = static_cast<std::size_t>(model_rope_pos(inputs, i));
    for (std::size_t c = 0; c < dim; ++c) x[i * dim + c] += weights.positions[p * dim + c];
  }
  return x;
}

void ffn_hidden(const FfnSpec& ffn, LayerActivations& a) {
  a.hidden = a.up;
  for (std::size_t i = 0; i < a.hidden.size(); ++i) {
    a.hidden[i] =
        ffn.gated ? activate(ffn.activation, a.gate[i]) * a.up[i] : activate(ffn.activation, a.up[i]);
  }
}

Result<LayerActivations> layer_forward(const ModelSpec& spec, const LayerSpec& layer, const LayerWeights& w,
                                       const ModelInputs& inputs, Rows x) {
  const HeadSpec& heads = layer.attention.heads;
  const NormSpec& norm = spec.norm;
  LayerActivations a;
  a.input = std::move(x);
  a.attention_input = norm_forward(norm, w.attention_norm, a.input);
  a.q = linear_forward(w.q, a.attention_input, spec.model_dim);
  a.k = linear_forward(w.k, a.attention_input, spec.model_dim);
  a.v = linear_forward(w.v, a.attention_input, spec.model_dim);
  if (layer.qk_norm != QkNorm::kNone) {
    a.q_before_norm = a.q;
    a.k_before_norm = a.k;
    a.q = norm_forward(norm, w.q_norm, a.q_before_norm);
    a.k = norm_forward(norm, w.k_norm, a.k_before_norm);
  }
  SIGHTLINE_TRY(AttentionOutputs attended,
                attention_forward(layer.attention, layer_attention_inputs(heads, inputs, a)));
  a.attention = std::move(attended.out);
  a.attention_branch = linear_forward(w.o, a.attention, std::int64_t{heads.num_q_heads} * heads.v_head_dim);
  a.middle = a.input;
  add_scaled(a.middle, norm_forward(norm, w.post_attention_norm, a.attention_branch), spec.residual_scale);

  a.ffn_input =
      spec.residual == ResidualKind::kParallel ? a.attention_input : norm_forward(norm, w.ffn_norm, a.middle);
  if (layer.ffn.gated) a.gate = linear_forward(w.gate, a.ffn_input, spec.model_dim);
  a.up = linear_forward(w.up, a.ffn_input, spec.model_dim);
  ffn_hidden(layer.ffn, a);
  a.ffn_branch = linear_forward(w.down, a.hidden, layer.ffn.ffn_dim);
  a.output = a.middle;
  add_scaled(a.output, norm_forward(norm, w.post_ffn_norm, a.ffn_branch), spec.residual_scale);
  return a;
}

}  // namespace

Result<ModelOutputs> model_forward(const ModelSpec& spec, const ModelWeights& weights,
                                   const ModelInputs& inputs) {
  SIGHTLINE_CHECK(check_model_call(spec, weights, inputs, "model_forward"));
  ModelOutputs outputs;
  Rows x = embed(spec, weights, inputs);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    SIGHTLINE_TRY(LayerActivations layer,
                  layer_forward(spec, spec.layers[i], weights.layers[i], inputs, std::move(x)));
    x = layer.output;
    outputs.layers.push_back(std::move(layer));
  }
  outputs.final_norm = norm_forward(spec.norm, weights.final_norm, x);
  outputs.logits =
      linear_forward({head_weight(weights), weights.head.bias}, outputs.final_norm, spec.model_dim);
  for (double& logit : outputs.logits) {
    logit *= spec.logit_scale;
    const double cap = spec.final_logit_softcap;
    if (cap > 0) logit = cap * std::tanh(logit / cap);
  }
  return outputs;
}

}  // namespace sightline::reference
