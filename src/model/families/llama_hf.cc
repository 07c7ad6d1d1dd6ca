// model_type "llama" and "mistral" of Hugging Face folders. Keys and defaults: transformers'
// configuration_llama.py and configuration_mistral.py; q and k rows stand in halves.
#include "model/families/hf_config.h"

namespace sightline {

namespace {

enum class Kind { kLlama, kMistral };

TensorNames llama_names(RowOrder order) {
  return {.embedding = "model.embed_tokens.weight",
          .final_norm = "model.norm",
          .head = "lm_head",
          .layer_prefix = [](int layer) { return fmt::format("model.layers.{}.", layer); },
          .attention_norm = "input_layernorm",
          .ffn_norm = "post_attention_layernorm",
          .q = "self_attn.q_proj",
          .k = "self_attn.k_proj",
          .v = "self_attn.v_proj",
          .output = "self_attn.o_proj",
          .gate = "mlp.gate_proj",
          .up = "mlp.up_proj",
          .down = "mlp.down_proj",
          .qk_order = order};
}

Result<HeadSpec> read_heads(const KeyReader& keys, Kind kind, std::int64_t width, FamilyModel& model) {
  HeadSpec heads;
  SIGHTLINE_TRY(const std::int64_t num_q, keys.get_int("num_attention_heads", 1, kMaxHeads));
  std::int64_t num_kv = num_q;
  if (keys.has("num_key_value_heads")) {
    SIGHTLINE_TRY(num_kv, keys.get_int("num_key_value_heads", 1, kMaxHeads));
  } else if (kind == Kind::kMistral && !keys.is_null("num_key_value_heads")) {
    num_kv = 8;
    model.assume("num_key_value_heads", "8", "absent: the default of transformers for mistral");
  } else {
    model.assume("num_key_value_heads", fmt::format("{}", num_kv),
                 "null or absent: num_attention_heads, as transformers has it");
  }
  if (num_q % num_kv != 0) {
    return keys.error("num_key_value_heads",
                      fmt::format("{} does not divide num_attention_heads = {}", num_kv, num_q));
  }
  std::int64_t head_dim = 0;
  if (keys.has("head_dim")) {
    SIGHTLINE_TRY(head_dim, keys.get_int("head_dim", 1, kMaxHeadDim));
  } else {
    SIGHTLINE_TRY(head_dim, head_dim_from_width(keys, {"hidden_size", "num_attention_heads"}, width, num_q));
    model.assume("head_dim", fmt::format("{}", head_dim), "absent: hidden_size / num_attention_heads");
  }
  heads.num_q_heads = static_cast<int>(num_q);
  heads.num_kv_heads = static_cast<int>(num_kv);
  heads.qk_head_dim = static_cast<int>(head_dim);
  heads.v_head_dim = static_cast<int>(head_dim);
  return heads;
}

// The window of each layer; 0: none.
Result<std::vector<std::int64_t>> read_windows(const KeyReader& keys, const LoadOptions& options, Kind kind,
                                               std::size_t num_layers) {
  constexpr std::string_view kKey = "sliding_window";
  std::vector<std::int64_t> windows(num_layers, 0);
  const bool stated = options.window.has_value();
  SIGHTLINE_TRY(const std::int64_t window, keys.int_or(kKey, 0, 0, kMaxStatedContext));
  if (kind == Kind::kLlama && window != 0 && !stated) {
    return keys.error(
        kKey, fmt::format("{}: transformers ignores it for llama; state what holds with --window", window));
  }
  // A null says "no window"; a missing key would mean transformers' default, which is not the same.
  if (kind == Kind::kMistral && !keys.has(kKey) && !keys.is_null(kKey) && !stated) {
    return keys.missing(kKey, "null means none; state it with --window");
  }
  windows.assign(num_layers, window);
  if (!keys.has("layer_types") || stated) return windows;
  SIGHTLINE_TRY(const std::vector<std::string> types, keys.get_strings("layer_types"));
  if (types.size() != num_layers) {
    return keys.error("layer_types", fmt::format("expected {} entries, got {}", num_layers, types.size()));
  }
  for (std::size_t i = 0; i < num_layers; ++i) {
    if (types[i] == "full_attention") {
      windows[i] = 0;
    } else if (types[i] != "sliding_attention" || window == 0) {
      return keys.error("layer_types",
                        fmt::format("layer {}: {} is not supported{}", i, Json(types[i].substr(0, 60)).dump(),
                                    window == 0 ? " without sliding_window" : ""));
    }
  }
  return windows;
}

Result<void> check_interleaved(const KeyReader& keys, const LoadOptions& options) {
  constexpr std::string_view kKey = "rope_interleaved";
  SIGHTLINE_TRY(const bool interleaved, keys.bool_or(kKey, false));
  if (interleaved && !options.rope_pairing) {
    return keys.error(kKey,
                      "true: the order of q and k rows is not the one of this kind; state it with "
                      "--rope-pairing");
  }
  return {};
}

Result<FamilyModel> read_kind(const ModelFiles& files, const LoadOptions& options, Kind kind) {
  const KeyReader keys = hf_keys(files, options);
  FamilyModel model;
  ModelSpec& spec = model.spec;
  spec.family = kind == Kind::kLlama ? "llama" : "mistral";
  SIGHTLINE_TRY(const std::int64_t num_layers, keys.get_int("num_hidden_layers", 1, kMaxLayers));
  SIGHTLINE_TRY(const std::int64_t width, keys.get_int("hidden_size", 1, kMaxWidth));
  SIGHTLINE_TRY(const std::int64_t vocab_size, keys.get_int("vocab_size", 1, kMaxVocabulary));
  SIGHTLINE_TRY(const std::int64_t ffn_dim, keys.get_int("intermediate_size", 1, kMaxFfnDim));
  SIGHTLINE_TRY(spec.context_length, read_context_length(keys, "max_position_embeddings", model));
  spec.model_dim = static_cast<int>(width);
  spec.vocab_size = static_cast<int>(vocab_size);
  spec.norm.kind = NormKind::kRms;
  SIGHTLINE_TRY(spec.norm.epsilon, keys.get_number("rms_norm_eps", kEpsilonRange));

  LayerSpec layer;
  SIGHTLINE_TRY(layer.attention.heads, read_heads(keys, kind, width, model));
  SIGHTLINE_CHECK(check_interleaved(keys, options));
  SIGHTLINE_TRY(layer.attention.rope,
                read_hf_rope(keys, options, layer.attention.heads.qk_head_dim, spec.context_length, model));
  layer.ffn.ffn_dim = static_cast<int>(ffn_dim);
  SIGHTLINE_TRY(layer.ffn.activation, hf_activation(keys, "hidden_act", "silu", model));
  SIGHTLINE_TRY(layer.qkv_bias, keys.bool_or("attention_bias", false));
  layer.output_bias = layer.qkv_bias;
  SIGHTLINE_TRY(layer.ffn.bias, keys.bool_or("mlp_bias", false));
  SIGHTLINE_TRY(const std::vector<std::int64_t> windows,
                read_windows(keys, options, kind, static_cast<std::size_t>(num_layers)));
  SIGHTLINE_TRY(spec.tied_head, read_hf_tied_head(keys, files.tensors(), HeadTie::kByTensor, model));
  SIGHTLINE_CHECK(keys.refuse_unread("--ignore-key states that it is without meaning"));

  for (const std::int64_t window : windows) {
    layer.attention.mask = causal_mask(window);
    spec.layers.push_back(layer);
  }
  SIGHTLINE_TRY(const RowOrder order,
                apply_statements(options, RowOrder::kHalves, "llama in safetensors", model));
  std::vector<std::string> ignored = std::move(model.layout.ignored_tensors);
  model.layout = make_layout(spec, llama_names(order));
  model.layout.ignored_tensors = std::move(ignored);
  model.layout.ignored_suffixes = {".rotary_emb.inv_freq"};
  return model;
}

}  // namespace

Result<FamilyModel> read_llama_hf(const ModelFiles& files, const LoadOptions& options) {
  return read_kind(files, options, Kind::kLlama);
}

Result<FamilyModel> read_mistral_hf(const ModelFiles& files, const LoadOptions& options) {
  return read_kind(files, options, Kind::kMistral);
}

}  // namespace sightline
