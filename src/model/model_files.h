// The opened files of a model: one GGUF file, or a Hugging Face folder with config.json and safetensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/formats/gguf.h"
#include "sightline/formats/safetensors.h"
#include "sightline/model/model_info.h"

namespace sightline {

struct ModelFiles {
  std::filesystem::path path;
  std::string file_kind;
  std::optional<GgufFile> gguf;
  // A folder:
  Json config;
  std::optional<SafetensorsFile> safetensors;

  [[nodiscard]] const TensorSource& tensors() const {
    return gguf ? static_cast<const TensorSource&>(*gguf) : *safetensors;
  }
};

/// Opens the headers; reads no tensor data. Keys that `options` states stand in the metadata or in `config`
/// then. Errors: those of GgufFile and SafetensorsFile; kNoInput for a folder without config.json;
/// kInvalidArgument for a stated key that no reader of a GGUF file looks at.
[[nodiscard]] Result<ModelFiles> open_model_files(const std::string& path, const LoadOptions& options = {});
/// The same for a GGUF file alone.
[[nodiscard]] Result<GgufFile> open_gguf(const std::string& path, const LoadOptions& options);

/// The text of a small file in a folder, or nothing when it is not there.
[[nodiscard]] Result<std::optional<std::string>> read_optional_file(const std::filesystem::path& path,
                                                                    std::uint64_t max_bytes);

}  // namespace sightline
