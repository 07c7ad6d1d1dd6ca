// The part of a GGUF file before the data: parsed with every count held against the bytes left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"
#include "sightline/formats/gguf_metadata.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

inline constexpr std::uint64_t kGgufMagic = 0x46554747;  // "GGUF"
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::uint64_t kGgufMaxAlignment = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kGgufMaxKeys = 65536;
inline constexpr std::uint64_t kGgufMaxKeyBytes = 65535;
inline constexpr std::uint64_t kGgufMaxNameBytes = 64;
inline constexpr std::uint32_t kGgufMaxRank = 4;
inline constexpr std::uint64_t kGgufMaxStringBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kGgufMaxMetadataBytes = std::uint64_t{512} << 20;

struct GgufHeader {
  std::uint32_t version = 0;
  std::uint64_t alignment = kGgufDefaultAlignment;
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // file_offset is absolute
  std::vector<std::string> warnings;
};

[[nodiscard]] Result<GgufHeader> read_gguf_header(const ByteSource& bytes);

/// A key that files may hold: 1 to 65,535 printable ASCII characters.
[[nodiscard]] bool is_gguf_key(std::string_view key);

}  // namespace sightline
