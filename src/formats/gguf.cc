#include "sightline/formats/gguf.h"

#include <utility>

#include "gguf_header.h"
#include "gguf_split.h"

namespace sightline {

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  SIGHTLINE_TRY(BytesPtr bytes, open_bytes(path));
  return open(std::move(bytes));
}

Result<GgufFile> GgufFile::open(BytesPtr bytes) {
  SIGHTLINE_TRY(GgufHeader header, read_gguf_header(*bytes));
  std::string name = bytes->name();
  std::vector<BytesPtr> files{std::move(bytes)};
  SIGHTLINE_CHECK(open_gguf_parts(name, header, files));
  SIGHTLINE_TRY(TensorSource base,
                TensorSource::create(std::move(name), std::move(files), std::move(header.tensors)));
  GgufFile file(std::move(base), std::move(header.metadata));
  file.version_ = header.version;
  file.alignment_ = header.alignment;
  for (auto& text : header.warnings) file.add_warning(std::move(text));
  return file;
}

}  // namespace sightline
