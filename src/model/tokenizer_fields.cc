#include "model/tokenizer_fields.h"

#include <algorithm>
#include <limits>

namespace sightline {

namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string key_name(std::string_view name) { return std::string(kPrefix) + std::string(name); }

Result<std::vector<std::string>> read_strings(const GgufMetadata& metadata, std::string_view name) {
  SIGHTLINE_TRY(const GgufStrings* strings, metadata.get_strings(key_name(name)));
  std::vector<std::string> out;
  out.reserve(strings->size());
  for (std::size_t i = 0; i < strings->size(); ++i) out.emplace_back((*strings)[i]);
  return out;
}

Result<std::optional<std::int64_t>> read_id(const GgufMetadata& metadata, std::string_view name) {
  if (!metadata.has(key_name(name))) return std::optional<std::int64_t>();
  SIGHTLINE_TRY(const std::int64_t id, metadata.get_int(key_name(name)));
  return std::optional<std::int64_t>(id);
}

Result<std::optional<bool>> read_bool(const GgufMetadata& metadata, std::string_view name) {
  if (!metadata.has(key_name(name))) return std::optional<bool>();
  SIGHTLINE_TRY(const bool value, metadata.get_bool(key_name(name)));
  return std::optional<bool>(value);
}

// Keys that are read here or by model_text.cc, and those that no encoding or decoding of ours depends on.
constexpr std::string_view kKnown[] = {
    "ggml.model",
    "ggml.pre",
    "ggml.tokens",
    "ggml.scores",
    "ggml.token_type",
    "ggml.merges",
    "ggml.bos_token_id",
    "ggml.eos_token_id",
    "ggml.eot_token_id",
    "ggml.eom_token_id",
    "ggml.unknown_token_id",
    "ggml.padding_token_id",
    "ggml.add_bos_token",
    "ggml.add_eos_token",
    "ggml.add_space_prefix",
    "ggml.remove_extra_whitespaces",
    "chat_template",
    // Without meaning here:
    "ggml.token_type_count",
    "ggml.seperator_token_id",
    "ggml.mask_token_id",
    "ggml.cls_token_id",
    "ggml.prefix_token_id",
    "ggml.suffix_token_id",
    "ggml.middle_token_id",
    "ggml.fim_pre_token_id",
    "ggml.fim_suf_token_id",
    "ggml.fim_mid_token_id",
    "ggml.fim_pad_token_id",
    "ggml.fim_rep_token_id",
    "ggml.fim_sep_token_id",
    "huggingface.json",
    "chat_templates",
};

Result<void> refuse_unknown(const GgufMetadata& metadata, const LoadOptions& options) {
  constexpr std::string_view kAll = "tokenizer.";
  for (const GgufEntry& entry : metadata.entries()) {
    if (!entry.key.starts_with(kAll)) continue;
    const std::string_view name = std::string_view(entry.key).substr(kAll.size());
    if (name.starts_with("chat_template.") || std::ranges::find(kKnown, name) != std::end(kKnown) ||
        std::ranges::find(options.ignored_keys, entry.key) != options.ignored_keys.end()) {
      continue;
    }
    return metadata.error(entry.key,
                          fmt::format("not known here, and it may change the ids of a text (got {}); "
                                      "--ignore-key states that it is without meaning",
                                      describe(entry.value)));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_fields(const GgufFile& file, const LoadOptions& options) {
  const GgufMetadata& metadata = file.metadata();
  TokenizerSpec spec;
  spec.source = file.name();
  spec.override_pre = options.pre_tokenizer;
  SIGHTLINE_TRY(spec.model, metadata.get_string(key_name("model")));
  SIGHTLINE_CHECK(refuse_unknown(metadata, options));
  if (metadata.has(key_name("pre"))) {
    SIGHTLINE_TRY(spec.pre, metadata.get_string(key_name("pre")));
  }
  SIGHTLINE_TRY(spec.tokens, read_strings(metadata, "tokens"));
  if (metadata.has(key_name("scores"))) {
    SIGHTLINE_TRY(const std::span<const float> scores, metadata.get_floats(key_name("scores")));
    spec.scores.assign(scores.begin(), scores.end());
  }
  if (metadata.has(key_name("token_type"))) {
    constexpr std::int64_t kMin = std::numeric_limits<std::int32_t>::min();
    constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
    SIGHTLINE_TRY(const std::vector<std::int64_t> types,
                  metadata.get_ints(key_name("token_type"), kMin, kMax));
    spec.types.reserve(types.size());
    for (const std::int64_t type : types) spec.types.push_back(static_cast<std::int32_t>(type));
  }
  if (metadata.has(key_name("merges"))) {
    SIGHTLINE_TRY(spec.merges, read_strings(metadata, "merges"));
  }
  SIGHTLINE_TRY(spec.bos_id, read_id(metadata, "bos_token_id"));
  SIGHTLINE_TRY(spec.eos_id, read_id(metadata, "eos_token_id"));
  SIGHTLINE_TRY(spec.eot_id, read_id(metadata, "eot_token_id"));
  SIGHTLINE_TRY(spec.eom_id, read_id(metadata, "eom_token_id"));
  SIGHTLINE_TRY(spec.unk_id, read_id(metadata, "unknown_token_id"));
  SIGHTLINE_TRY(spec.pad_id, read_id(metadata, "padding_token_id"));
  SIGHTLINE_TRY(spec.add_bos, read_bool(metadata, "add_bos_token"));
  SIGHTLINE_TRY(spec.add_eos, read_bool(metadata, "add_eos_token"));
  SIGHTLINE_TRY(spec.add_space_prefix, read_bool(metadata, "add_space_prefix"));
  SIGHTLINE_TRY(spec.remove_extra_whitespaces, read_bool(metadata, "remove_extra_whitespaces"));
  return spec;
}

}  // namespace sightline
