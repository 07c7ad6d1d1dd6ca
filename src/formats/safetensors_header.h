// The JSON header of a safetensors file, read event by event: no tree, bounded by the header's size.
#pragma once

#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"
#include "sightline/formats/safetensors.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

inline constexpr std::uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;  // limit of the reference reader

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<TensorInfo> tensors;  // file_offset is absolute; in the order of the header
};

/// Reads and checks the header: every tensor has its range, and the ranges fill the data exactly.
[[nodiscard]] Result<SafetensorsHeader> read_safetensors_header(const ByteSource& bytes);

}  // namespace sightline
