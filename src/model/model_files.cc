#include "model/model_files.h"

#include "sightline/base/file.h"

namespace sightline {

namespace {
constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{4} << 20;
}  // namespace

Result<ModelFiles> open_model_files(const std::string& path) {
  ModelFiles files;
  files.path = path;
  std::error_code error;
  if (!std::filesystem::is_directory(files.path, error)) {
    SIGHTLINE_TRY(GgufFile gguf, GgufFile::open(files.path));
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
