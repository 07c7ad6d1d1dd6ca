// Writes GGUF files, version 3: metadata of every type, tensors of every GGUF type (F32, F16, BF16 and
// Q8_0 from f32 values, others as bytes).
#pragma once

#include <filesystem>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/gguf_metadata.h"
#include "sightline/formats/tensor_writer.h"

namespace sightline {

/// Starts a GGUF file: metadata in the given order (`file_offset` is ignored), then the declared tensors.
/// `general.alignment` is taken from the metadata when it is there. The result reads back through GgufFile.
/// Errors: kInvalidArgument naming key or tensor for what a reader would refuse (repeated or non-ASCII keys,
/// names over 64 bytes, rank over 4, rows that split a block, types without a GGUF number); kCannotCreate,
/// kIo.
[[nodiscard]] Result<TensorWriter> create_gguf(const std::filesystem::path& path,
                                               const std::vector<GgufEntry>& metadata,
                                               std::vector<TensorDecl> tensors, bool overwrite);

}  // namespace sightline
