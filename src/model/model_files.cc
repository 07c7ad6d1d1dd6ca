#include "model/model_files.h"

#include "sightline/base/file.h"

namespace sightline {

namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{4} << 20;

Result<GgufValue> as_gguf_value(const StatedKey& stated) {
  if (const bool* v = stated.value.as_bool()) return *v;
  if (const std::int64_t* v = stated.value.as_int()) return *v;
  if (const std::string* v = stated.value.as_string()) return *v;
  double number = 0;
  if (stated.value.get_number(number)) return number;
  return fail(ErrorKind::kInvalidArgument,
              "--override-kv: key '{}': expected a bool, a number or a text, got {}", stated.key,
              stated.value.dump().substr(0, 60));
}

// The keys that a reader looks at: what is stated must have an effect, or be refused later as unknown.
Result<void> check_gguf_key(const StatedKey& stated, const GgufMetadata& metadata) {
  constexpr std::string_view kArchitecture = "general.architecture";
  std::string prefix = "llama.";
  if (metadata.has(kArchitecture)) {
    SIGHTLINE_TRY(const std::string architecture, metadata.get_string(kArchitecture));
    prefix = architecture + ".";
  }
  if (stated.key == kArchitecture || stated.key == "general.type" || stated.key.starts_with("tokenizer.") ||
      stated.key.starts_with(prefix)) {
    return {};
  }
  return fail(ErrorKind::kInvalidArgument,
              "--override-kv: key '{}': expected {}, general.type, or one that begins with {} or tokenizer.",
              stated.key, kArchitecture, prefix);
}

// The members of `config` with the stated ones in place of, or behind, its own.
Json with_stated(const Json& config, const std::vector<StatedKey>& stated_keys) {
  JsonObject members = *config.as_object();
  for (const StatedKey& stated : stated_keys) {
    std::erase_if(members, [&](const JsonMember& member) { return member.first == stated.key; });
    members.emplace_back(stated.key, stated.value);
  }
  return members;
}

}  // namespace

Result<GgufFile> open_gguf(const std::string& path, const LoadOptions& options) {
  SIGHTLINE_TRY(GgufFile file, GgufFile::open(std::filesystem::path(path)));
  for (const StatedKey& stated : options.stated_keys) {
    SIGHTLINE_CHECK(check_gguf_key(stated, file.metadata()));
    SIGHTLINE_TRY(GgufValue value, as_gguf_value(stated));
    file.set_metadata(stated.key, std::move(value));
  }
  return file;
}

Result<ModelFiles> open_model_files(const std::string& path, const LoadOptions& options) {
  ModelFiles files;
  files.path = path;
  std::error_code error;
  if (!std::filesystem::is_directory(files.path, error)) {
    SIGHTLINE_TRY(GgufFile gguf, open_gguf(path, options));
    files.file_kind = fmt::format("GGUF v{}", gguf.version());
    files.gguf.emplace(std::move(gguf));
    return files;
  }
  const std::filesystem::path config_path = files.path / "config.json";
  SIGHTLINE_TRY(const std::string text, read_file(config_path, kMaxConfigBytes));
  SIGHTLINE_TRY(files.config, parse_json(text, config_path.string()));
  if (files.config.as_object() == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: expected a JSON object", config_path.string());
  }
  files.config = with_stated(files.config, options.stated_keys);
  SIGHTLINE_TRY(SafetensorsFile tensors, SafetensorsFile::open(files.path));
  files.safetensors.emplace(std::move(tensors));
  files.file_kind = "Hugging Face folder (safetensors)";
  return files;
}

Result<std::optional<std::string>> read_optional_file(const std::filesystem::path& path,
                                                      std::uint64_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::optional<std::string>();
  SIGHTLINE_TRY(std::string text, read_file(path, max_bytes));
  return std::optional<std::string>(std::move(text));
}

}  // namespace sightline
