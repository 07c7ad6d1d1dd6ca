// The table of families, and what they share.
#include "model/families/family.h"

namespace sightline {

namespace {

std::string names_of(bool is_gguf) {
  std::string names;
  for (const Family& family : families()) {
    if (family.is_gguf != is_gguf) continue;
    if (!names.empty()) names += ", ";
    names += family.name;
  }
  return names;
}

Result<std::string> stated_name(const ModelFiles& files) {
  if (!files.gguf) {
    const std::string source = (files.path / "config.json").string();
    return KeyReader::from_json(source, files.config).get_string("model_type");
  }
  const std::string general[] = {"general."};
  const KeyReader keys = KeyReader::from_gguf(files.gguf->name(), files.gguf->metadata(), general);
  if (keys.has("general.type")) {
    SIGHTLINE_TRY(const std::string type, keys.get_string("general.type"));
    if (type != "model")
      return keys.error("general.type", fmt::format("expected \"model\", got \"{}\"", type));
  }
  return keys.get_string("general.architecture");
}

}  // namespace

std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {true, "llama", read_llama_gguf},
      {false, "llama", read_llama_hf},
      {false, "mistral", read_mistral_hf},
      {false, "gpt2", read_gpt2_hf},
  };
  return kFamilies;
}

Result<FamilyModel> read_family(const ModelFiles& files, const LoadOptions& options) {
  SIGHTLINE_TRY(const std::string name, stated_name(files));
  const bool is_gguf = files.gguf.has_value();
  for (const Family& family : families()) {
    if (family.is_gguf != is_gguf || family.name != name) continue;
    SIGHTLINE_TRY(FamilyModel model, family.read(files, options));
    if (auto valid = validate(model.spec); !valid) {
      return fail(ErrorKind::kInvalidContent, "{}: {}", files.path.string(), valid.error().message);
    }
    SIGHTLINE_CHECK(check_layout(model.layout, files.tensors()));
    return model;
  }
  return fail(ErrorKind::kInvalidContent, "{}: {} {} is not supported in {}; supported: {}",
              files.path.string(), is_gguf ? "general.architecture" : "model_type",
              Json(name.substr(0, 60)).dump(), is_gguf ? "GGUF files" : "folders", names_of(is_gguf));
}

Result<int> head_dim_from_width(const KeyReader& keys, HeadKeys names, std::int64_t hidden,
                                std::int64_t num_heads) {
  if (hidden % num_heads != 0 || hidden / num_heads > kMaxHeadDim) {
    return keys.error(names.hidden, fmt::format("{} is not a multiple of {} = {} (heads of at most {})",
                                                hidden, names.num_heads, num_heads, kMaxHeadDim));
  }
  return static_cast<int>(hidden / num_heads);
}

Result<std::int64_t> read_context_length(const KeyReader& keys, std::string_view key, FamilyModel& model) {
  SIGHTLINE_TRY(const std::int64_t stated, keys.get_int(key, 1, kMaxStatedContext));
  if (stated <= kMaxContext) return stated;
  model.assume(std::string(key), fmt::format("{}", kMaxContext),
               fmt::format("the file says {}; longer contexts are capped", stated));
  return kMaxContext;
}

MaskSpec causal_mask(std::int64_t window) {
  if (window == 0) return mask_rule(MaskOp::kCausal);
  return mask_rule(MaskOp::kCausal) & mask_rule(MaskOp::kWindow, window);
}

Result<RowOrder> apply_statements(const LoadOptions& options, RowOrder file_order,
                                  std::string_view file_order_source, FamilyModel& model) {
  bool rotates = false;
  for (const LayerSpec& layer : model.spec.layers) {
    rotates = rotates || layer.attention.rope.pairing != RopePairing::kNone;
  }
  const auto refuse = [&](std::string_view option) {
    return fail(ErrorKind::kConfiguration, "{}: this model has no rotary positions", option);
  };
  if (options.window) {
    if (*options.window < 0) {
      return fail(ErrorKind::kInvalidArgument, "--window: expected 0 (none) or more, got {}",
                  *options.window);
    }
    for (LayerSpec& layer : model.spec.layers) layer.attention.mask = causal_mask(*options.window);
    model.assume("--window", fmt::format("{}", *options.window), "stated by the caller");
  }
  if (options.rope_theta) {
    if (!rotates) return refuse("--rope-theta");
    for (LayerSpec& layer : model.spec.layers) layer.attention.rope.theta = *options.rope_theta;
    model.assume("--rope-theta", fmt::format("{}", *options.rope_theta), "stated by the caller");
  }
  if (options.rope_scaling) {
    if (!rotates) return refuse("--rope-scaling");
    const RopeScaling& scaling = *options.rope_scaling;
    double magnitude = 1.0;
    if (scaling.kind == RopeScalingKind::kYarn) magnitude = yarn_magnitude(scaling.factor);
    if (scaling.kind == RopeScalingKind::kLongRope) {
      magnitude = longrope_magnitude(scaling.factor, scaling.original_context);
    }
    for (LayerSpec& layer : model.spec.layers) {
      layer.attention.rope.scaling = scaling;
      layer.attention.rope.cos_sin_magnitude = magnitude;
    }
    model.assume("--rope-scaling", std::string(to_string(scaling.kind)), "stated by the caller");
  }

  RowOrder order = file_order;
  std::string_view source = file_order_source;
  if (options.rope_pairing && *options.rope_pairing == RopePairing::kNone) {
    if (!rotates) return refuse("--rope-pairing");
    for (LayerSpec& layer : model.spec.layers) layer.attention.rope = RopeSpec{};
    rotates = false;
    model.assume("--rope-pairing", "none", "stated by the caller");
  } else if (options.rope_pairing) {
    if (!rotates) return refuse("--rope-pairing");
    order = *options.rope_pairing == RopePairing::kInterleaved ? RowOrder::kNeighbours : RowOrder::kHalves;
    source = "stated by the caller";
    model.assume("--rope-pairing", std::string(to_string(*options.rope_pairing)), "stated by the caller");
  }
  if (!rotates) {
    model.qk_row_order = "no rotation: rows as in the file";
  } else if (order == RowOrder::kNeighbours) {
    model.qk_row_order =
        fmt::format("neighbours (2i, 2i+1) in the file ({}), brought to halves while loading", source);
  } else {
    model.qk_row_order = fmt::format("halves (i, i + d/2) in the file ({}), kept", source);
  }
  return order;
}

}  // namespace sightline
