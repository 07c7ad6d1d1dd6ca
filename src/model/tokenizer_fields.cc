#include "model/tokenizer_fields.h"

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

}  // namespace

Result<TokenizerSpec> read_tokenizer_fields(const GgufFile& file, const LoadOptions& options) {
  const GgufMetadata& metadata = file.metadata();
  TokenizerSpec spec;
  spec.source = file.name();
  spec.override_pre = options.pre_tokenizer;
  SIGHTLINE_TRY(spec.model, metadata.get_string(key_name("model")));
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
