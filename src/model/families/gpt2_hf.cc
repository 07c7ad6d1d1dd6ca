// model_type "gpt2" of Hugging Face folders: learned positions, LayerNorm, one fused projection whose three
// blocks of columns are q, k and v, and linear weights stored as [in_dim, out_dim] (Conv1D). Keys and
// defaults: transformers' configuration_gpt2.py.
#include <cmath>

#include "model/families/hf_config.h"

namespace sightline {

namespace {

TensorNames gpt2_names(const std::string& prefix) {
  return {.embedding = prefix + "wte.weight",
          .positions = prefix + "wpe.weight",
          .final_norm = prefix + "ln_f",
          .head = "lm_head",
          .layer_prefix = [prefix](int layer) { return fmt::format("{}h.{}.", prefix, layer); },
          .attention_norm = "ln_1",
          .ffn_norm = "ln_2",
          .output = "attn.c_proj",
          .fused_qkv = "attn.c_attn",
          .up = "mlp.c_fc",
          .down = "mlp.c_proj",
          .transposed = true};
}

// Either name of the number of positions; both must agree.
Result<std::int64_t> read_num_positions(const KeyReader& keys) {
  if (!keys.has("n_positions")) {
    if (!keys.has("n_ctx")) return keys.missing("n_positions");
    return keys.get_int("n_ctx", 1, kMaxContext);
  }
  SIGHTLINE_TRY(const std::int64_t num_positions, keys.get_int("n_positions", 1, kMaxContext));
  SIGHTLINE_TRY(const std::int64_t context, keys.int_or("n_ctx", num_positions, 1, kMaxContext));
  if (context != num_positions) {
    return keys.error("n_ctx", fmt::format("{}, but n_positions is {}", context, num_positions));
  }
  return num_positions;
}

Result<LayerSpec> read_layer(const KeyReader& keys, std::int64_t width, FamilyModel& model) {
  LayerSpec layer;
  HeadSpec& heads = layer.attention.heads;
  SIGHTLINE_TRY(const std::int64_t num_heads, keys.get_int("n_head", 1, kMaxHeads));
  SIGHTLINE_TRY(const int head_dim, head_dim_from_width(keys, {"n_embd", "n_head"}, width, num_heads));
  heads.num_q_heads = heads.num_kv_heads = static_cast<int>(num_heads);
  heads.qk_head_dim = heads.v_head_dim = head_dim;
  SIGHTLINE_TRY(const bool scales, keys.bool_or("scale_attn_weights", true));
  if (!scales) layer.attention.score.softmax_scale = 1.0;
  layer.qkv_bias = layer.output_bias = true;
  layer.ffn.gated = false;
  layer.ffn.bias = true;
  if (!keys.has("n_inner")) {
    model.assume("n_inner", fmt::format("{}", 4 * width), "null or absent: 4 * n_embd (transformers)");
  }
  SIGHTLINE_TRY(const std::int64_t ffn_dim, keys.int_or("n_inner", 4 * width, 1, kMaxFfnDim));
  layer.ffn.ffn_dim = static_cast<int>(ffn_dim);
  SIGHTLINE_TRY(layer.ffn.activation, hf_activation(keys, "activation_function", "gelu_new", model));
  return layer;
}

}  // namespace

Result<FamilyModel> read_gpt2_hf(const ModelFiles& files, const LoadOptions& options) {
  const KeyReader keys = hf_keys(files, options);
  FamilyModel model;
  ModelSpec& spec = model.spec;
  spec.family = "gpt2";
  SIGHTLINE_TRY(const std::int64_t num_layers, keys.get_int("n_layer", 1, kMaxLayers));
  SIGHTLINE_TRY(const std::int64_t width, keys.get_int("n_embd", 1, kMaxWidth));
  SIGHTLINE_TRY(const std::int64_t vocab_size, keys.get_int("vocab_size", 1, kMaxVocabulary));
  SIGHTLINE_TRY(const std::int64_t num_positions, read_num_positions(keys));
  spec.model_dim = static_cast<int>(width);
  spec.vocab_size = static_cast<int>(vocab_size);
  spec.context_length = num_positions;
  spec.num_learned_positions = static_cast<int>(num_positions);
  spec.norm.kind = NormKind::kLayer;
  spec.norm.bias = true;
  if (!keys.has("layer_norm_epsilon")) {
    model.assume("layer_norm_epsilon", "1e-05", "absent: the default of transformers");
  }
  SIGHTLINE_TRY(spec.norm.epsilon, keys.number_or("layer_norm_epsilon", 1e-5, kEpsilonRange));
  SIGHTLINE_TRY(LayerSpec layer, read_layer(keys, width, model));
  SIGHTLINE_TRY(const bool by_layer, keys.bool_or("scale_attn_by_inverse_layer_idx", false));
  SIGHTLINE_TRY(const bool cross, keys.bool_or("add_cross_attention", false));
  if (cross) return keys.error("add_cross_attention", "cross attention is not supported");
  SIGHTLINE_TRY(spec.tied_head, read_hf_tied_head(keys, files.tensors(), HeadTie::kTiedByDefault, model));
  SIGHTLINE_CHECK(keys.refuse_unread("--ignore-key states that it is without meaning"));

  const double scale = softmax_scale(layer.attention.score, layer.attention.heads);
  for (std::int64_t i = 0; i < num_layers; ++i) {
    if (by_layer) layer.attention.score.softmax_scale = scale / static_cast<double>(i + 1);
    spec.layers.push_back(layer);
  }
  SIGHTLINE_TRY(const RowOrder order, apply_statements(options, RowOrder::kHalves, "", model));
  (void)order;  // nothing rotates
  const bool prefixed = files.tensors().find("transformer.wte.weight") != nullptr;
  std::vector<std::string> ignored = std::move(model.layout.ignored_tensors);
  model.layout = make_layout(spec, gpt2_names(prefixed ? "transformer." : ""));
  model.layout.ignored_tensors = std::move(ignored);
  model.layout.ignored_suffixes = {".attn.bias", ".attn.masked_bias"};
  return model;
}

}  // namespace sightline
