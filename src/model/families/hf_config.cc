#include "model/families/hf_config.h"

namespace sightline {

namespace {

// Members of config.json that describe training, generation defaults, storage or the program that wrote it.
constexpr std::string_view kWithoutMeaning[] = {
    "_attn_implementation_autoset",
    "_model_name_or_path",
    "_name_or_path",
    "architectures",
    "attention_dropout",
    "attn_pdrop",
    "bos_token_id",
    "chunk_size_feed_forward",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "initializer_range",
    "is_llama_config",
    "model_type",
    "output_attentions",
    "output_hidden_states",
    "pad_token_id",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    "resid_pdrop",
    "return_dict",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
};

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : mscale * (yarn_magnitude(factor) - 1) + 1;
}

// transformers' modeling_rope_utils.py: one function a kind. `rope` holds the members, `top` config.json.
struct RopeReader {
  const KeyReader& top;
  const KeyReader& keys;
  std::int64_t context_length;
  FamilyModel& model;

  Result<std::int64_t> original_context(bool required) const {
    constexpr std::string_view kKey = "original_max_position_embeddings";
    if (keys.has(kKey)) return keys.get_int(kKey, 1, kMaxStatedContext);
    if (top.has(kKey)) return top.get_int(kKey, 1, kMaxStatedContext);
    if (required) return keys.missing(kKey, "state the scaling with --rope-scaling");
    model.assume(std::string(kKey), fmt::format("{}", context_length),
                 "absent: max_position_embeddings (transformers)");
    return context_length;
  }

  Result<double> number(std::string_view key, double fallback) const {
    if (!keys.has(key)) {
      model.assume(std::string(key), fmt::format("{}", fallback), "absent: the default of transformers");
    }
    return keys.number_or(key, fallback, kFactorRange);
  }

  Result<void> linear(RopeSpec& rope) const {
    rope.scaling.kind = RopeScalingKind::kLinear;
    SIGHTLINE_TRY(rope.scaling.factor, keys.get_number("factor", kFactorRange));
    return {};
  }

  Result<void> dynamic(RopeSpec& rope) const {
    rope.scaling.kind = RopeScalingKind::kDynamicNtk;
    SIGHTLINE_TRY(rope.scaling.factor, keys.get_number("factor", kFactorRange));
    SIGHTLINE_TRY(rope.scaling.original_context, original_context(false));
    model.assume("rope_type dynamic", "base fixed once per sequence by the length it is set up for",
                 "transformers follows the current length, which makes cached keys stale");
    return {};
  }

  Result<void> yarn(RopeSpec& rope) const {
    RopeScaling& scaling = rope.scaling;
    scaling.kind = RopeScalingKind::kYarn;
    SIGHTLINE_TRY(scaling.factor, keys.get_number("factor", kFactorRange));
    SIGHTLINE_TRY(scaling.original_context, original_context(false));
    SIGHTLINE_TRY(scaling.beta_fast, number("beta_fast", 32));
    SIGHTLINE_TRY(scaling.beta_slow, number("beta_slow", 1));
    SIGHTLINE_TRY(scaling.truncate, keys.bool_or("truncate", true));
    const bool has_mscales = keys.has("mscale") && keys.has("mscale_all_dim");
    if (keys.has("attention_factor")) {
      SIGHTLINE_TRY(rope.cos_sin_magnitude, keys.get_number("attention_factor", kFactorRange));
    } else if (has_mscales) {
      constexpr NumberRange kMscale{.min = 0, .max = 1e6, .above_min = false};
      SIGHTLINE_TRY(const double mscale, keys.get_number("mscale", kMscale));
      SIGHTLINE_TRY(const double all_dim, keys.get_number("mscale_all_dim", kMscale));
      rope.cos_sin_magnitude = yarn_mscale(scaling.factor, mscale) / yarn_mscale(scaling.factor, all_dim);
    } else {
      rope.cos_sin_magnitude = yarn_magnitude(scaling.factor);
    }
    return {};
  }

  Result<void> longrope(RopeSpec& rope) const {
    RopeScaling& scaling = rope.scaling;
    scaling.kind = RopeScalingKind::kLongRope;
    SIGHTLINE_TRY(scaling.original_context, original_context(true));
    const double ratio = static_cast<double>(context_length) / static_cast<double>(scaling.original_context);
    SIGHTLINE_TRY(scaling.factor, number("factor", ratio));
    SIGHTLINE_TRY(scaling.short_divisors, keys.get_numbers("short_factor"));
    SIGHTLINE_TRY(scaling.long_divisors, keys.get_numbers("long_factor"));
    SIGHTLINE_TRY(rope.cos_sin_magnitude,
                  keys.number_or("attention_factor",
                                 longrope_magnitude(scaling.factor, scaling.original_context), kFactorRange));
    model.assume("longrope list", "chosen once per sequence by the length it is set up for",
                 "transformers follows the current length, which makes cached keys stale");
    return {};
  }

  Result<void> llama3(RopeSpec& rope) const {
    RopeScaling& scaling = rope.scaling;
    scaling.kind = RopeScalingKind::kLlama3;
    SIGHTLINE_TRY(scaling.factor, keys.get_number("factor", kFactorRange));
    SIGHTLINE_TRY(scaling.low_freq_factor, keys.get_number("low_freq_factor", kFactorRange));
    SIGHTLINE_TRY(scaling.high_freq_factor, keys.get_number("high_freq_factor", kFactorRange));
    SIGHTLINE_TRY(scaling.original_context, original_context(true));
    return {};
  }

  Result<void> read(RopeSpec& rope) const {
    const std::string_view type_key = keys.has("rope_type") ? "rope_type" : "type";
    keys.mark_read("type");
    if (!keys.has(type_key)) return keys.missing("rope_type");
    SIGHTLINE_TRY(const std::string type, keys.get_string(type_key));
    if (type == "linear") return linear(rope);
    if (type == "dynamic") return dynamic(rope);
    if (type == "yarn") return yarn(rope);
    if (type == "longrope" || type == "su") return longrope(rope);
    if (type == "llama3") return llama3(rope);
    if (type == "default") return {};
    return keys.error(type_key, fmt::format("rope type {} is not known; state it with --rope-scaling",
                                            Json(type.substr(0, 60)).dump()));
  }
};

Result<int> read_rotary_dim(const KeyReader& keys, int head_dim) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  SIGHTLINE_TRY(const double share, keys.number_or(kKey, 1.0, {.min = 0, .max = 1, .above_min = true}));
  const int rotary_dim = static_cast<int>(head_dim * share);
  if (rotary_dim % 2 != 0 || rotary_dim < 2) {
    return keys.error(kKey, fmt::format("{} of {} dims is {}: expected an even number above 0", share,
                                        head_dim, rotary_dim));
  }
  return rotary_dim;
}

}  // namespace

KeyReader hf_keys(const ModelFiles& files, const LoadOptions& options) {
  KeyReader keys = KeyReader::from_json((files.path / "config.json").string(), files.config);
  keys.ignore(kWithoutMeaning);
  keys.ignore(options.ignored_keys);
  return keys;
}

Result<RopeSpec> read_hf_rope(const KeyReader& keys, const LoadOptions& options, int head_dim,
                              std::int64_t context_length, FamilyModel& model) {
  RopeSpec rope;
  rope.pairing = RopePairing::kHalfSplit;
  const bool new_form = keys.has("rope_parameters");
  const std::string_view form = new_form ? "rope_parameters" : "rope_scaling";
  if (new_form && keys.has("rope_scaling") && !options.rope_scaling) {
    return keys.error("rope_scaling", "stands beside rope_parameters; state one with --rope-scaling");
  }
  std::optional<KeyReader> scaling;
  if (keys.has(form)) {
    SIGHTLINE_TRY(scaling, keys.get_object(form, "state the scaling with --rope-scaling"));
    SIGHTLINE_CHECK(scaling->refuse_objects("parameters by layer type are not supported"));
  }
  keys.mark_read("rope_scaling");
  const KeyReader& theta_keys = new_form && scaling->has("rope_theta") ? *scaling : keys;
  if (!theta_keys.has("rope_theta")) {
    model.assume("rope_theta", "10000", "absent: the default of transformers; --rope-theta states another");
  }
  SIGHTLINE_TRY(rope.theta, theta_keys.number_or("rope_theta", 10000, kThetaRange));
  const KeyReader& share_keys = new_form && scaling->has("partial_rotary_factor") ? *scaling : keys;
  SIGHTLINE_TRY(rope.rotary_dim, read_rotary_dim(share_keys, head_dim));
  keys.mark_read("original_max_position_embeddings");
  if (options.rope_scaling || !scaling) return rope;
  const RopeReader reader{keys, *scaling, context_length, model};
  SIGHTLINE_CHECK(reader.read(rope));
  SIGHTLINE_CHECK(scaling->refuse_unread("state the whole scaling with --rope-scaling"));
  return rope;
}

Result<Activation> hf_activation(const KeyReader& keys, std::string_view key, std::string_view fallback,
                                 FamilyModel& model) {
  std::string name(fallback);
  if (keys.has(key)) {
    SIGHTLINE_TRY(name, keys.get_string(key));
  } else {
    model.assume(std::string(key), name, "absent: the default of transformers");
  }
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "relu") return Activation::kRelu;
  return keys.error(key,
                    fmt::format("activation {} is not supported (silu, gelu_new, gelu_pytorch_tanh, gelu, "
                                "relu)",
                                Json(name.substr(0, 60)).dump()));
}

Result<bool> read_hf_tied_head(const KeyReader& keys, const TensorSource& tensors, HeadTie tie,
                               FamilyModel& model) {
  constexpr std::string_view kKey = "tie_word_embeddings";
  const std::string head_tensor = "lm_head.weight";
  const bool has_tensor = tensors.find(head_tensor) != nullptr;
  bool tied = tie == HeadTie::kTiedByDefault || !has_tensor;
  if (keys.has(kKey)) {
    SIGHTLINE_TRY(tied, keys.get_bool(kKey));
  } else {
    model.assume(std::string(kKey), tied ? "true" : "false",
                 tie == HeadTie::kTiedByDefault ? "absent: the default of transformers"
                                                : fmt::format("absent: tensor '{}' is {}", head_tensor,
                                                              has_tensor ? "there" : "absent"));
  }
  if (tied && has_tensor) {
    model.layout.ignored_tensors.push_back(head_tensor);
    model.assume(head_tensor, "not used", "tie_word_embeddings is true: the embedding table is the head");
  }
  return tied;
}

}  // namespace sightline
