#include "sightline/formats/gguf.h"

#include <utility>

#include "gguf_header.h"

namespace sightline {

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  SIGHTLINE_TRY(BytesPtr bytes, open_bytes(path));
  return open(std::move(bytes));
}

Result<GgufFile> GgufFile::open(BytesPtr bytes) {
  SIGHTLINE_TRY(GgufHeader header, read_gguf_header(*bytes));
  if (header.metadata.has("split.count")) {
    SIGHTLINE_TRY(const auto num_parts, header.metadata.get_int("split.count", 0, 65535));
    if (num_parts > 1) {
      return header.metadata.error("split.count",
                                   fmt::format("a set of {} files cannot be read yet", num_parts));
    }
  }
  std::string name = bytes->name();
  SIGHTLINE_TRY(TensorSource base,
                TensorSource::create(std::move(name), {std::move(bytes)}, std::move(header.tensors)));
  GgufFile file(std::move(base), std::move(header.metadata));
  file.version_ = header.version;
  file.alignment_ = header.alignment;
  for (auto& text : header.warnings) file.add_warning(std::move(text));
  return file;
}

}  // namespace sightline
