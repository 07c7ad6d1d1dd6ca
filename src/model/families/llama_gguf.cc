// Architecture "llama" of GGUF files: llama, mistral, SmolLM2. Keys: ggml/docs/gguf.md and llama.cpp's
// gguf-py constants; q and k rows are permuted to neighbours by the converter.
#include <cmath>

#include "model/families/family.h"

namespace sightline {

namespace {

constexpr std::string_view kPrefix = "llama.";

std::string key_name(std::string_view name) { return std::string(kPrefix) + std::string(name); }

// Keys that describe a run, a file or a whole other model family, and change nothing at these values.
struct FixedKey {
  std::string_view name;
  double value;
};
constexpr FixedKey kOnlyAtThisValue[] = {
    {"expert_count", 0},        {"expert_used_count", 0},
    {"attention.clamp_kqv", 0}, {"attention.max_alibi_bias", 0},
    {"logit_scale", 1},         {"residual_scale", 1},
    {"embedding_scale", 1},     {"rope.scaling.yarn_log_multiplier", 0},
};

Result<void> check_fixed_keys(const KeyReader& keys) {
  for (const FixedKey& fixed : kOnlyAtThisValue) {
    const std::string key = key_name(fixed.name);
    if (!keys.has(key)) continue;
    SIGHTLINE_TRY(const double value, keys.get_number(key, {.min = -1e30, .max = 1e30}));
    if (value != fixed.value) {
      return keys.error(key, fmt::format("{} is not supported (only {})", value, fixed.value));
    }
  }
  const std::string causal = key_name("attention.causal");
  if (keys.has(causal)) {
    SIGHTLINE_TRY(const bool is_causal_model, keys.get_bool(causal));
    if (!is_causal_model) return keys.error(causal, "only causal decoders are supported");
  }
  return {};
}

// One number per rotary pair, stored as a tensor: meaning, not a weight.
Result<std::vector<double>> read_divisors(const GgufFile& file, const std::string& name, int rotary_dim) {
  const TensorInfo* info = file.find(name);
  const std::vector<std::int64_t> expected = {rotary_dim / 2};
  if (info == nullptr || info->shape != expected) {
    return fail(ErrorKind::kInvalidContent, "{}: tensor '{}': expected shape {}, got {}", file.name(), name,
                shape_to_string(expected), info == nullptr ? "no tensor" : shape_to_string(info->shape));
  }
  std::vector<float> values(static_cast<std::size_t>(rotary_dim / 2));
  SIGHTLINE_CHECK(file.read_f32(*info, 0, 1, values));
  return std::vector<double>(values.begin(), values.end());
}

Result<double> read_yarn(const KeyReader& keys, RopeScaling& scaling, FamilyModel& model) {
  const auto number = [&](std::string_view name, double fallback, std::string_view why) -> Result<double> {
    const std::string key = key_name(name);
    if (!keys.has(key)) {
      model.assume(key, fmt::format("{}", fallback), std::string(why));
      return fallback;
    }
    return keys.get_number(key, kFactorRange);
  };
  SIGHTLINE_TRY(scaling.beta_fast,
                number("rope.scaling.yarn_beta_fast", 32, "absent: the value of the YaRN paper"));
  SIGHTLINE_TRY(scaling.beta_slow,
                number("rope.scaling.yarn_beta_slow", 1, "absent: the value of the YaRN paper"));
  const std::string mix = key_name("rope.scaling.yarn_ext_factor");
  SIGHTLINE_TRY(const double ext_factor, keys.number_or(mix, 1, {.min = -1, .max = 1, .above_min = false}));
  if (ext_factor != 1 && ext_factor != -1) {
    return keys.error(mix, fmt::format("{} is not supported (only 1, or -1 for the default 1)", ext_factor));
  }
  model.assume("YaRN ramp", "linear in the dimension index", "the form that GGUF files are made for");
  return yarn_magnitude(scaling.factor);
}

Result<void> read_scaling(const GgufFile& file, const KeyReader& keys, std::int64_t context_length,
                          RopeSpec& rope, FamilyModel& model) {
  const std::string type_key = key_name("rope.scaling.type");
  const std::string factor_key = key_name("rope.scaling.factor");
  const std::string original_key = key_name("rope.scaling.original_context_length");
  const std::string old_key = key_name("rope.scale_linear");
  const std::string_view ignored[] = {"llama.rope.scaling.finetuned"};
  keys.ignore(ignored);

  std::string type = "none";
  std::string used_factor_key = factor_key;
  if (keys.has(type_key)) {
    SIGHTLINE_TRY(type, keys.get_string(type_key));
  } else if (keys.has(factor_key) || keys.has(old_key)) {
    type = "linear";
    if (!keys.has(factor_key)) used_factor_key = old_key;
    model.assume(type_key, "linear", "absent beside a factor: llama.cpp's rule");
  }
  RopeScaling& scaling = rope.scaling;
  if (type != "none") {
    if (type == "longrope" && !keys.has(factor_key)) {
      scaling.factor = 1.0;
    } else {
      SIGHTLINE_TRY(scaling.factor, keys.get_number(used_factor_key, kFactorRange));
    }
    if (keys.has(original_key)) {
      SIGHTLINE_TRY(scaling.original_context, keys.get_int(original_key, 1, kMaxStatedContext));
    } else if (type != "linear") {
      scaling.original_context = context_length;
      model.assume(original_key, fmt::format("{}", context_length), "absent: the context length");
    }
  } else {
    keys.mark_read(factor_key);
    keys.mark_read(original_key);
  }
  double magnitude = 1.0;
  if (type == "linear") {
    scaling.kind = scaling.factor == 1.0 ? RopeScalingKind::kNone : RopeScalingKind::kLinear;
  } else if (type == "yarn") {
    scaling.kind = RopeScalingKind::kYarn;
    SIGHTLINE_TRY(magnitude, read_yarn(keys, scaling, model));
  } else if (type == "longrope") {
    scaling.kind = RopeScalingKind::kLongRope;
    SIGHTLINE_TRY(scaling.short_divisors, read_divisors(file, "rope_factors_short.weight", rope.rotary_dim));
    SIGHTLINE_TRY(scaling.long_divisors, read_divisors(file, "rope_factors_long.weight", rope.rotary_dim));
    model.layout.ignored_tensors.insert(model.layout.ignored_tensors.end(),
                                        {"rope_factors_short.weight", "rope_factors_long.weight"});
    model.assume("longrope list", "chosen once per sequence by the length it is set up for",
                 "a choice by the current length would make cached keys stale");
  } else if (type != "none") {
    return keys.error(type_key, fmt::format("scaling type {} is not known; state it with --rope-scaling",
                                            Json(type.substr(0, 60)).dump()));
  }
  for (const std::string_view name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"}) {
    SIGHTLINE_TRY(const double factor, keys.number_or(key_name(name), 1, kFactorRange));
    magnitude *= factor;
  }
  rope.cos_sin_magnitude = magnitude;
  if (file.find("rope_freqs.weight") != nullptr) {
    if (type != "none") {
      return keys.error(type_key,
                        "scaling beside a tensor 'rope_freqs.weight'; state one with --rope-scaling");
    }
    scaling.kind = RopeScalingKind::kDivisors;
    SIGHTLINE_TRY(scaling.long_divisors, read_divisors(file, "rope_freqs.weight", rope.rotary_dim));
    model.layout.ignored_tensors.push_back("rope_freqs.weight");
  }
  return {};
}

// The caller states the scaling: what the file says of it is not looked at.
void ignore_scaling(const KeyReader& keys, FamilyModel& model) {
  for (const std::string_view name :
       {"rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length",
        "rope.scaling.finetuned", "rope.scale_linear", "rope.scaling.attn_factor",
        "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
        "rope.scaling.yarn_ext_factor"}) {
    keys.mark_read(key_name(name));
  }
  for (const char* tensor : {"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"}) {
    model.layout.ignored_tensors.emplace_back(tensor);
  }
}

struct HeadCounts {
  std::vector<std::int64_t> q, kv;
};

Result<HeadCounts> read_head_counts(const KeyReader& keys, std::size_t num_layers, FamilyModel& model) {
  HeadCounts counts;
  const std::string q_key = key_name("attention.head_count");
  const std::string kv_key = key_name("attention.head_count_kv");
  SIGHTLINE_TRY(counts.q, keys.get_ints_per(q_key, num_layers, 1, kMaxHeads));
  if (keys.has(kv_key)) {
    SIGHTLINE_TRY(counts.kv, keys.get_ints_per(kv_key, num_layers, 1, kMaxHeads));
  } else {
    counts.kv = counts.q;
    model.assume(kv_key, fmt::format("{}", counts.q[0]), "absent: as many as query heads (gguf.md)");
  }
  for (std::size_t i = 0; i < num_layers; ++i) {
    if (counts.q[i] % counts.kv[i] == 0) continue;
    return keys.error(
        kv_key, fmt::format("layer {}: {} does not divide {} = {}", i, counts.kv[i], q_key, counts.q[i]));
  }
  return counts;
}

TensorNames llama_names(RowOrder order) {
  return {.embedding = "token_embd.weight",
          .final_norm = "output_norm",
          .head = "output",
          .layer_prefix = [](int layer) { return fmt::format("blk.{}.", layer); },
          .attention_norm = "attn_norm",
          .ffn_norm = "ffn_norm",
          .q = "attn_q",
          .k = "attn_k",
          .v = "attn_v",
          .output = "attn_output",
          .gate = "ffn_gate",
          .up = "ffn_up",
          .down = "ffn_down",
          .qk_order = order};
}

Result<std::int64_t> read_vocab_size(const GgufFile& file, const KeyReader& keys) {
  std::int64_t num_tokens = 0;
  if (file.metadata().has("tokenizer.ggml.tokens")) {
    SIGHTLINE_TRY(const GgufStrings* tokens, file.metadata().get_strings("tokenizer.ggml.tokens"));
    num_tokens = static_cast<std::int64_t>(tokens->size());
  }
  const std::string key = key_name("vocab_size");
  if (!keys.has(key)) {
    if (num_tokens > 0) return num_tokens;
    return keys.missing(key, "and there is no tokenizer to count");
  }
  SIGHTLINE_TRY(const std::int64_t stated, keys.get_int(key, 1, kMaxVocabulary));
  if (num_tokens > stated) {
    return keys.error(key, fmt::format("{}, but tokenizer.ggml.tokens has {} entries", stated, num_tokens));
  }
  return stated;
}

// Everything that is the same in every layer.
Result<LayerSpec> read_layer(const GgufFile& file, const KeyReader& keys, const LoadOptions& options,
                             std::int64_t num_q_heads, FamilyModel& model) {
  LayerSpec layer;
  HeadSpec& heads = layer.attention.heads;
  const std::string key_length = key_name("attention.key_length");
  const std::string value_length = key_name("attention.value_length");
  const auto read_dim = [&](const std::string& key) -> Result<int> {
    if (keys.has(key)) {
      SIGHTLINE_TRY(const std::int64_t dim, keys.get_int(key, 1, kMaxHeadDim));
      return static_cast<int>(dim);
    }
    const std::string width = key_name("embedding_length");
    const std::string count = key_name("attention.head_count");
    SIGHTLINE_TRY(const int dim,
                  head_dim_from_width(keys, {width, count}, model.spec.model_dim, num_q_heads));
    model.assume(key, fmt::format("{}", dim), "absent: embedding_length / attention.head_count (gguf.md)");
    return dim;
  };
  SIGHTLINE_TRY(heads.qk_head_dim, read_dim(key_length));
  SIGHTLINE_TRY(heads.v_head_dim, read_dim(value_length));

  RopeSpec& rope = layer.attention.rope;
  rope.pairing = RopePairing::kHalfSplit;
  const std::string dims = key_name("rope.dimension_count");
  if (!keys.has(dims)) {
    model.assume(dims, fmt::format("{}", heads.qk_head_dim), "absent: the whole head (gguf.md)");
  }
  SIGHTLINE_TRY(const std::int64_t rotary_dim, keys.int_or(dims, heads.qk_head_dim, 2, heads.qk_head_dim));
  if (rotary_dim % 2 != 0)
    return keys.error(dims, fmt::format("expected an even number, got {}", rotary_dim));
  rope.rotary_dim = static_cast<int>(rotary_dim);
  const std::string theta = key_name("rope.freq_base");
  if (!keys.has(theta)) {
    model.assume(theta, "10000", "absent: the default of GGUF files; --rope-theta states another");
  }
  SIGHTLINE_TRY(rope.theta, keys.number_or(theta, 10000, kThetaRange));
  if (options.rope_scaling) {
    ignore_scaling(keys, model);
  } else {
    SIGHTLINE_CHECK(read_scaling(file, keys, model.spec.context_length, rope, model));
  }

  const std::string window_key = key_name("attention.sliding_window");
  SIGHTLINE_TRY(const std::int64_t window, keys.int_or(window_key, 0, 0, kMaxStatedContext));
  layer.attention.mask = causal_mask(window);
  if (!keys.has(window_key)) {
    model.assume(window_key, "0: no window",
                 "absent; converters drop the window of Mistral 7B v0.1: --window states it");
  }
  const std::string scale = key_name("attention.scale");
  if (keys.has(scale)) {
    SIGHTLINE_TRY(const double value, keys.get_number(scale, kFactorRange));
    layer.attention.score.softmax_scale = value;
  }
  constexpr NumberRange kCap{.min = 0, .max = 1e9, .above_min = false};
  SIGHTLINE_TRY(layer.attention.score.logit_softcap,
                keys.number_or(key_name("attn_logit_softcapping"), 0, kCap));
  SIGHTLINE_TRY(model.spec.final_logit_softcap, keys.number_or(key_name("final_logit_softcapping"), 0, kCap));
  layer.ffn.activation = Activation::kSilu;
  layer.ffn.gated = true;
  return layer;
}

bool has_biases(const GgufFile& file, std::string_view suffix) {
  return file.find(fmt::format("blk.0.{}.bias", suffix)) != nullptr;
}

}  // namespace

Result<FamilyModel> read_llama_gguf(const ModelFiles& files, const LoadOptions& options) {
  const GgufFile& file = *files.gguf;
  const std::string prefix[] = {std::string(kPrefix)};
  const KeyReader keys = KeyReader::from_gguf(file.name(), file.metadata(), prefix);
  keys.ignore(options.ignored_keys);
  FamilyModel model;
  ModelSpec& spec = model.spec;
  spec.family = "llama";
  SIGHTLINE_CHECK(check_fixed_keys(keys));
  SIGHTLINE_TRY(const std::int64_t num_layers, keys.get_int(key_name("block_count"), 1, kMaxLayers));
  SIGHTLINE_TRY(const std::int64_t width, keys.get_int(key_name("embedding_length"), 1, kMaxWidth));
  spec.model_dim = static_cast<int>(width);
  SIGHTLINE_TRY(spec.context_length, read_context_length(keys, key_name("context_length"), model));
  SIGHTLINE_TRY(const std::int64_t vocab_size, read_vocab_size(file, keys));
  spec.vocab_size = static_cast<int>(vocab_size);
  const auto count = static_cast<std::size_t>(num_layers);
  SIGHTLINE_TRY(const std::vector<std::int64_t> ffn_dims,
                keys.get_ints_per(key_name("feed_forward_length"), count, 1, kMaxFfnDim));
  SIGHTLINE_TRY(const HeadCounts counts, read_head_counts(keys, count, model));
  spec.norm.kind = NormKind::kRms;
  SIGHTLINE_TRY(spec.norm.epsilon,
                keys.get_number(key_name("attention.layer_norm_rms_epsilon"), kEpsilonRange));
  SIGHTLINE_TRY(LayerSpec layer, read_layer(file, keys, options, counts.q[0], model));
  SIGHTLINE_CHECK(keys.refuse_unread("--ignore-key states that it is without meaning"));

  layer.qkv_bias = has_biases(file, "attn_q");
  layer.output_bias = has_biases(file, "attn_output");
  layer.ffn.bias = has_biases(file, "ffn_up");
  for (std::size_t i = 0; i < count; ++i) {
    layer.attention.heads.num_q_heads = static_cast<int>(counts.q[i]);
    layer.attention.heads.num_kv_heads = static_cast<int>(counts.kv[i]);
    layer.ffn.ffn_dim = static_cast<int>(ffn_dims[i]);
    spec.layers.push_back(layer);
  }
  spec.tied_head = file.find("output.weight") == nullptr;
  if (spec.tied_head) {
    model.assume("output.weight", "the embedding table", "absent: a tied head (gguf.md)");
  }
  SIGHTLINE_TRY(const RowOrder order, apply_statements(options, RowOrder::kNeighbours,
                                                       "llama in GGUF: permuted by the converter", model));
  std::vector<std::string> ignored = std::move(model.layout.ignored_tensors);
  model.layout = make_layout(spec, llama_names(order));
  model.layout.ignored_tensors = std::move(ignored);
  return model;
}

}  // namespace sightline
