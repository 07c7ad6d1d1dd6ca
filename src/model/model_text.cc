#include "sightline/model/model_text.h"

#include <filesystem>

#include "model/model_files.h"
#include "model/text_parts.h"
#include "model/tokenizer_fields.h"

namespace sightline {

namespace {

constexpr std::uint64_t kMaxTokenizerBytes = std::uint64_t{128} << 20;
constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;

std::string special_text(const Tokenizer& tokenizer, TokenId id) {
  return id < 0 ? std::string() : std::string(tokenizer.token_text(id));
}

Result<std::string> template_of_config(const Json& config, const std::string& source) {
  const Json* value = config.find("chat_template");
  if (value == nullptr || value->is_null()) return std::string();
  if (const std::string* text = value->as_string()) return *text;
  const JsonArray* list = value->as_array();
  if (list == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: chat_template: expected a string or a list", source);
  }
  for (const Json& entry : *list) {
    const Json* name = entry.find("name");
    const Json* text = entry.find("template");
    if (name == nullptr || text == nullptr || name->as_string() == nullptr || text->as_string() == nullptr) {
      return fail(ErrorKind::kInvalidContent, "{}: chat_template: expected entries with name and template",
                  source);
    }
    if (*name->as_string() == "default") return *text->as_string();
  }
  return std::string();
}

Result<TextParts> read_folder(const std::filesystem::path& folder) {
  TextParts parts;
  const std::filesystem::path tokenizer_path = folder / "tokenizer.json";
  SIGHTLINE_TRY(const std::optional<std::string> text,
                read_optional_file(tokenizer_path, kMaxTokenizerBytes));
  if (!text) return parts;
  const std::filesystem::path config_path = folder / "tokenizer_config.json";
  SIGHTLINE_TRY(const std::optional<std::string> config, read_optional_file(config_path, kMaxTokenizerBytes));
  SIGHTLINE_TRY(Tokenizer tokenizer, Tokenizer::from_json(*text, config ? std::string_view(*config) : "",
                                                          tokenizer_path.string()));
  parts.bytes = static_cast<std::int64_t>(text->size());
  parts.tokenizer.emplace(std::move(tokenizer));
  SIGHTLINE_TRY(const std::optional<std::string> own,
                read_optional_file(folder / "chat_template.jinja", kMaxTemplateBytes));
  if (own) {
    parts.chat_template = *own;
  } else if (config) {
    SIGHTLINE_TRY(const Json json, parse_json(*config, config_path.string()));
    SIGHTLINE_TRY(parts.chat_template, template_of_config(json, config_path.string()));
  }
  return parts;
}

}  // namespace

Result<TextParts> read_text_parts(const GgufFile& file, const LoadOptions& options) {
  TextParts parts;
  const GgufMetadata& metadata = file.metadata();
  if (!metadata.has("tokenizer.ggml.model")) return parts;
  SIGHTLINE_TRY(TokenizerSpec spec, read_tokenizer_fields(file, options));
  if (spec.model == "none" || spec.model == "no_vocab") return parts;
  for (const std::string& token : spec.tokens) parts.bytes += static_cast<std::int64_t>(token.size());
  for (const std::string& merge : spec.merges) parts.bytes += static_cast<std::int64_t>(merge.size());
  SIGHTLINE_TRY(Tokenizer tokenizer, Tokenizer::from_spec(std::move(spec)));
  parts.tokenizer.emplace(std::move(tokenizer));
  if (metadata.has("tokenizer.chat_template")) {
    SIGHTLINE_TRY(parts.chat_template, metadata.get_string("tokenizer.chat_template"));
  }
  return parts;
}

Result<TextParts> read_text_parts(const std::string& path, const LoadOptions& options) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return read_folder(path);
  SIGHTLINE_TRY(const GgufFile file, open_gguf(path, options));
  return read_text_parts(file, options);
}

Result<ModelText> load_model_text(const std::string& path, const LoadOptions& options) {
  SIGHTLINE_TRY(TextParts parts, read_text_parts(path, options));
  std::error_code error;
  if (!parts.tokenizer && std::filesystem::is_directory(path, error)) {
    return fail(ErrorKind::kNoInput, "{}: holds no tokenizer.json", path);
  }
  if (!parts.tokenizer) {
    return fail(ErrorKind::kInvalidContent, "{}: there is no tokenizer in it", path);
  }
  ModelText text{std::move(*parts.tokenizer), std::nullopt};
  if (!parts.chat_template.empty()) {
    auto chat_template =
        ChatTemplate::parse(parts.chat_template, special_text(text.tokenizer, text.tokenizer.bos_id()),
                            special_text(text.tokenizer, text.tokenizer.eos_id()));
    if (!chat_template) {
      return fail(chat_template.error().kind, "{}: {}", path, chat_template.error().message);
    }
    text.chat_template.emplace(std::move(*chat_template));
  }
  return text;
}

}  // namespace sightline
