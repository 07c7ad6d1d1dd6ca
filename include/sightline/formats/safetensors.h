// Reads and writes safetensors: one file, or a folder with one file or an index of shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"
#include "sightline/formats/tensor_file.h"
#include "sightline/formats/tensor_writer.h"

namespace sightline {

/// String pairs of `__metadata__`, in the order of the file.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// The tensors of a safetensors file or folder.
///
/// Refused with kInvalidContent (file, byte offset, field): a header over 100,000,000 bytes or over the file,
/// not UTF-8, with a byte order mark or anything but white space around its object; repeated names and keys;
/// unknown types and fields; shapes and offsets that are no integers, overflow, or do not fit the type;
/// holes, overlaps and trailing bytes; rank over 8; more than 2^18 tensors. Types without a decoder (F8, F4,
/// ...) are listed; reading them is refused by name. Scalars and empty tensors are accepted. Memory: header
/// plus tensor table. Cost: one pass over the header; no tensor data are read. Source:
/// huggingface/safetensors README and safetensors/src/tensor.rs.
class SafetensorsFile : public TensorSource {
 public:
  /// A file, or a folder: `model.safetensors` if it is there, else the shards named by
  /// `model.safetensors.index.json`. Shards are plain file names inside the folder, also after symbolic links
  /// are followed; every indexed tensor is in its shard; a tensor that the index does not list is a warning.
  /// Errors: kNoInput when there is neither; kInvalidContent for a bad index.
  [[nodiscard]] static Result<SafetensorsFile> open(const std::filesystem::path& path);
  [[nodiscard]] static Result<SafetensorsFile> open(BytesPtr bytes);

  /// Of the one file, or of the first shard.
  [[nodiscard]] const SafetensorsMetadata& metadata() const { return metadata_; }

 private:
  [[nodiscard]] static Result<SafetensorsFile> open_files(std::string name, std::vector<BytesPtr> files);
  [[nodiscard]] static Result<SafetensorsFile> open_index(const std::filesystem::path& folder);
  explicit SafetensorsFile(TensorSource base) : TensorSource(std::move(base)) {}

  SafetensorsMetadata metadata_;
};

/// Starts a safetensors file; tensors lie in the declared order, the header is padded to 8 bytes.
/// Errors: kInvalidArgument naming the tensor (repeated or empty name, a type that safetensors lacks, sizes);
/// kCannotCreate, kIo.
[[nodiscard]] Result<TensorWriter> create_safetensors(const std::filesystem::path& path,
                                                      std::vector<TensorDecl> tensors,
                                                      const SafetensorsMetadata& metadata, bool overwrite);

/// Starts a folder: `model.safetensors` when all data fit `max_shard_bytes`, else
/// `model-00001-of-0000N.safetensors` and the index, which is published last. The folder must exist.
/// A tensor larger than `max_shard_bytes` has a shard of its own.
[[nodiscard]] Result<TensorWriter> create_safetensors_folder(const std::filesystem::path& folder,
                                                             std::vector<TensorDecl> tensors,
                                                             const SafetensorsMetadata& metadata,
                                                             std::uint64_t max_shard_bytes, bool overwrite);

}  // namespace sightline
