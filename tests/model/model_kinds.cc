#include "model/model_kinds.h"

#include <cmath>

namespace sightline::testing {

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  all.push_back({"llama", small_llama_spec()});
  all.push_back({"gpt2", small_gpt2_spec()});

  ModelSpec windows = small_llama_spec();
  windows.layers[0].attention.mask = *parse_mask("causal & window(7)");
  windows.layers[2].attention.mask = *parse_mask("causal & window(7)");
  windows.layers[1].attention.rope = RopeSpec{};
  windows.layers[2].attention.rope.theta = 50;
  all.push_back({"alternating windows, one layer without rotation", windows});

  ModelSpec partial = small_llama_spec();
  for (LayerSpec& layer : partial.layers) {
    layer.attention.heads = {6, 3, 10, 6};
    layer.attention.rope.rotary_dim = 4;
    layer.attention.rope.pairing = RopePairing::kInterleaved;
    layer.attention.score.softmax_scale = 0.4;
    layer.qkv_bias = layer.output_bias = layer.ffn.bias = true;
    layer.ffn.activation = Activation::kGeluErf;
  }
  all.push_back({"partial rotation of neighbours, other value width, biases", partial});

  ModelSpec parallel = small_llama_spec();
  parallel.norm = {NormKind::kLayer, 1e-5, false};
  parallel.residual = ResidualKind::kParallel;
  parallel.logit_scale = 0.25;
  parallel.tied_head = true;
  all.push_back({"parallel branches, layer norm without bias", parallel});

  ModelSpec parallel_after = small_llama_spec();
  parallel_after.residual = ResidualKind::kParallel;
  parallel_after.norm_placement = NormPlacement::kAfter;
  all.push_back({"parallel branches, norms after them", parallel_after});

  ModelSpec after = small_llama_spec();
  after.norm_placement = NormPlacement::kAfter;
  for (LayerSpec& layer : after.layers) layer.qk_norm = QkNorm::kFullWidth;
  all.push_back({"norms after the branches, q and k normalised over the width", after});

  ModelSpec both = small_llama_spec();
  both.norm_placement = NormPlacement::kBoth;
  both.embedding_scale = std::sqrt(24.0);
  both.residual_scale = 0.7;
  both.final_logit_softcap = 3;
  for (LayerSpec& layer : both.layers) {
    layer.qk_norm = QkNorm::kPerHead;
    layer.ffn.activation = Activation::kGeluTanh;
  }
  all.push_back({"norms on both sides, q and k normalised per head, scales and a cap", both});

  ModelSpec dynamic = small_llama_spec();
  for (LayerSpec& layer : dynamic.layers) {
    layer.attention.rope.scaling.kind = RopeScalingKind::kDynamicNtk;
    layer.attention.rope.scaling.factor = 2;
    layer.attention.rope.scaling.original_context = 16;
  }
  all.push_back({"dynamic ntk set up for 64 tokens", dynamic, 64});

  ModelSpec relu = small_gpt2_spec();
  relu.tied_head = false;
  for (LayerSpec& layer : relu.layers) layer.ffn.activation = Activation::kRelu;
  all.push_back({"gpt2 with relu and its own head", relu});
  return all;
}

reference::ModelInputs as_inputs(const Tokens& tokens, std::int64_t rope_length) {
  reference::ModelInputs inputs;
  inputs.token_ids = tokens.ids;
  inputs.coords = tokens.coords;
  inputs.rope_pos = tokens.rope_pos;
  inputs.rope_length = rope_length;
  return inputs;
}

}  // namespace sightline::testing
