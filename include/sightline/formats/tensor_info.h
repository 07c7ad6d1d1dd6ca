// What a file says of one tensor: its name, storage type, shape and byte range. No data, and no
// meaning: this layer knows no model. Conversions of the data are in quantize.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

/// Every storage type that GGUF, safetensors and npy files name. Not all are readable: see is_readable.
enum class DataType : std::uint8_t {
  // Plain numbers.
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  // GGUF blocks that are read.
  kQ8_0,
  kQ4_0,
  kQ4_1,
  // GGUF blocks that are only named.
  kQ5_0,
  kQ5_1,
  kQ8_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_K,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ3_XXS,
  kIQ1_S,
  kIQ4_NL,
  kIQ3_S,
  kIQ2_S,
  kIQ4_XS,
  kIQ1_M,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
  // safetensors types that are only named.
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF6E2M3,
  kF6E3M2,
  kF4,
  kC64,
};

/// One row of the type table: `block_elements` values take `block_bytes` bytes.
struct DataTypeInfo {
  DataType type;
  const char* name;  // as GGUF or safetensors spell it: "Q4_1", "BF16"
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
  std::int32_t gguf_id;  // -1: no GGUF type
  bool in_safetensors;
  bool readable;  // dequantize_row knows it
};

/// All types, each once, in the order of the enum.
[[nodiscard]] std::span<const DataTypeInfo> data_types();
[[nodiscard]] const DataTypeInfo& data_type_info(DataType type);
[[nodiscard]] const char* to_string(DataType type);
[[nodiscard]] bool is_readable(DataType type);
/// The type with this GGUF number, or none (removed and unknown numbers).
[[nodiscard]] std::optional<DataType> data_type_from_gguf(std::uint32_t gguf_id);
/// The type that safetensors spells so (upper case), or none.
[[nodiscard]] std::optional<DataType> data_type_from_safetensors(std::string_view name);

/// Bytes of `num_elements` values: none when they do not fill whole blocks, or on overflow.
[[nodiscard]] std::optional<std::uint64_t> row_bytes(DataType type, std::uint64_t num_elements);

inline constexpr std::size_t kMaxTensorRank = 8;
/// Tensors of one file, or of all shards of one folder.
inline constexpr std::uint64_t kMaxTensors = std::uint64_t{1} << 18;

/// One tensor of a file. `shape` is row-major, slowest dimension first (GGUF files store it reversed);
/// an empty shape is a scalar. A row is the last dimension; blocks never cross rows in GGUF.
struct TensorInfo {
  std::string name;
  DataType type = DataType::kF32;
  std::vector<std::int64_t> shape;
  std::uint32_t file_idx = 0;     // which file of the source holds it
  std::uint64_t file_offset = 0;  // first byte, from the start of that file
  std::uint64_t num_bytes = 0;

  /// Product of the shape; the readers have checked that it fits. 1 for a scalar.
  [[nodiscard]] std::int64_t num_elements() const;
  /// Last dimension; 1 for a scalar.
  [[nodiscard]] std::int64_t row_length() const { return shape.empty() ? 1 : shape.back(); }
  /// Product of all dimensions but the last; 1 for rank 0 and 1.
  [[nodiscard]] std::int64_t num_rows() const;
};

/// A shape as text: "[49152, 576]".
[[nodiscard]] std::string shape_to_string(std::span<const std::int64_t> shape);

/// The product of `shape` in elements, refusing negative dimensions, rank over kMaxTensorRank and
/// products over 2^63 - 1. Zero dimensions count as 1 for the overflow check, so that no partial product
/// of an accepted shape can overflow. None when refused.
[[nodiscard]] std::optional<std::int64_t> checked_num_elements(std::span<const std::int64_t> shape);

}  // namespace sightline
