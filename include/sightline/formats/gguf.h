// Reads GGUF files: metadata and the tensor table at once, tensor data when asked. Writing: gguf_writer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"
#include "sightline/formats/gguf_metadata.h"
#include "sightline/formats/tensor_file.h"

namespace sightline {

/// A GGUF file, version 2 or 3, little endian.
///
/// Refused with kInvalidContent (file, byte offset, field): other versions and byte orders, counts that do
/// not fit the file, repeated keys and names, arrays of arrays, bools other than 0 and 1, a bad
/// general.alignment, ranks over 4, sizes that overflow, rows that split a block, tensor types that are
/// unknown or were removed, offsets that are not the running padded sum, data past the end of the file. Known
/// types without a decoder (Q4_K, ...) are listed; reading them is refused by name. Empty tensors (a
/// dimension of 0) are listed. More than one alignment of trailing bytes is a warning. Limits: 65,536 keys,
/// 2^18 tensors, strings of 64 MiB, 512 MiB of metadata. Memory: at most the metadata's bytes in the file
/// plus a fixed buffer. Cost: one pass over the header. Source: ggml/docs/gguf.md.
class GgufFile : public TensorSource {
 public:
  [[nodiscard]] static Result<GgufFile> open(const std::filesystem::path& path);
  [[nodiscard]] static Result<GgufFile> open(BytesPtr bytes);

  [[nodiscard]] const GgufMetadata& metadata() const { return metadata_; }
  /// For a caller who knows better than the file: see GgufMetadata::set. Alignment and tensors stay as read.
  void set_metadata(std::string key, GgufValue value) { metadata_.set(std::move(key), std::move(value)); }
  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::uint64_t alignment() const { return alignment_; }

 private:
  GgufFile(TensorSource base, GgufMetadata metadata)
      : TensorSource(std::move(base)), metadata_(std::move(metadata)) {}

  GgufMetadata metadata_;
  std::uint32_t version_ = 3;
  std::uint64_t alignment_ = 32;
};

}  // namespace sightline
