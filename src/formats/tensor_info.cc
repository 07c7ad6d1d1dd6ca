#include "sightline/formats/tensor_info.h"

#include <fmt/ranges.h>

#include <array>

#include "sightline/base/checked.h"

namespace sightline {

namespace {

using enum DataType;

// Block sizes of ggml-common.h and gguf-py/gguf/constants.py; safetensors: safetensors/src/tensor.rs.
constexpr std::array kTypes{
    // type, name, elements, bytes, GGUF number, in safetensors, readable
    DataTypeInfo{kF64, "F64", 1, 8, 28, true, true},
    DataTypeInfo{kF32, "F32", 1, 4, 0, true, true},
    DataTypeInfo{kF16, "F16", 1, 2, 1, true, true},
    DataTypeInfo{kBF16, "BF16", 1, 2, 30, true, true},
    DataTypeInfo{kI64, "I64", 1, 8, 27, true, true},
    DataTypeInfo{kI32, "I32", 1, 4, 26, true, true},
    DataTypeInfo{kI16, "I16", 1, 2, 25, true, true},
    DataTypeInfo{kI8, "I8", 1, 1, 24, true, true},
    DataTypeInfo{kU64, "U64", 1, 8, -1, true, true},
    DataTypeInfo{kU32, "U32", 1, 4, -1, true, true},
    DataTypeInfo{kU16, "U16", 1, 2, -1, true, true},
    DataTypeInfo{kU8, "U8", 1, 1, -1, true, true},
    DataTypeInfo{kBool, "BOOL", 1, 1, -1, true, true},
    DataTypeInfo{kQ8_0, "Q8_0", 32, 34, 8, false, true},
    DataTypeInfo{kQ4_0, "Q4_0", 32, 18, 2, false, true},
    DataTypeInfo{kQ4_1, "Q4_1", 32, 20, 3, false, true},
    DataTypeInfo{kQ5_0, "Q5_0", 32, 22, 6, false, false},
    DataTypeInfo{kQ5_1, "Q5_1", 32, 24, 7, false, false},
    DataTypeInfo{kQ8_1, "Q8_1", 32, 36, 9, false, false},
    DataTypeInfo{kQ2_K, "Q2_K", 256, 84, 10, false, false},
    DataTypeInfo{kQ3_K, "Q3_K", 256, 110, 11, false, false},
    DataTypeInfo{kQ4_K, "Q4_K", 256, 144, 12, false, true},
    DataTypeInfo{kQ5_K, "Q5_K", 256, 176, 13, false, true},
    DataTypeInfo{kQ6_K, "Q6_K", 256, 210, 14, false, true},
    DataTypeInfo{kQ8_K, "Q8_K", 256, 292, 15, false, false},
    DataTypeInfo{kIQ2_XXS, "IQ2_XXS", 256, 66, 16, false, false},
    DataTypeInfo{kIQ2_XS, "IQ2_XS", 256, 74, 17, false, false},
    DataTypeInfo{kIQ3_XXS, "IQ3_XXS", 256, 98, 18, false, false},
    DataTypeInfo{kIQ1_S, "IQ1_S", 256, 50, 19, false, false},
    DataTypeInfo{kIQ4_NL, "IQ4_NL", 32, 18, 20, false, false},
    DataTypeInfo{kIQ3_S, "IQ3_S", 256, 110, 21, false, false},
    DataTypeInfo{kIQ2_S, "IQ2_S", 256, 82, 22, false, false},
    DataTypeInfo{kIQ4_XS, "IQ4_XS", 256, 136, 23, false, false},
    DataTypeInfo{kIQ1_M, "IQ1_M", 256, 56, 29, false, false},
    DataTypeInfo{kTQ1_0, "TQ1_0", 256, 54, 34, false, false},
    DataTypeInfo{kTQ2_0, "TQ2_0", 256, 66, 35, false, false},
    DataTypeInfo{kMXFP4, "MXFP4", 32, 17, 39, false, false},
    DataTypeInfo{kNVFP4, "NVFP4", 64, 36, 40, false, false},
    DataTypeInfo{kQ1_0, "Q1_0", 128, 18, 41, false, false},
    DataTypeInfo{kF8E4M3, "F8_E4M3", 1, 1, -1, true, false},
    DataTypeInfo{kF8E5M2, "F8_E5M2", 1, 1, -1, true, false},
    DataTypeInfo{kF8E8M0, "F8_E8M0", 1, 1, -1, true, false},
    DataTypeInfo{kF8E4M3Fnuz, "F8_E4M3FNUZ", 1, 1, -1, true, false},
    DataTypeInfo{kF8E5M2Fnuz, "F8_E5M2FNUZ", 1, 1, -1, true, false},
    DataTypeInfo{kF6E2M3, "F6_E2M3", 4, 3, -1, true, false},
    DataTypeInfo{kF6E3M2, "F6_E3M2", 4, 3, -1, true, false},
    DataTypeInfo{kF4, "F4", 2, 1, -1, true, false},
    DataTypeInfo{kC64, "C64", 1, 8, -1, true, false},
};

constexpr bool table_is_in_enum_order() {
  for (std::size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<std::size_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(table_is_in_enum_order());

}  // namespace

std::span<const DataTypeInfo> data_types() { return kTypes; }

const DataTypeInfo& data_type_info(DataType type) { return kTypes[static_cast<std::size_t>(type)]; }

const char* to_string(DataType type) { return data_type_info(type).name; }

bool is_readable(DataType type) { return data_type_info(type).readable; }

std::optional<DataType> data_type_from_gguf(std::uint32_t gguf_id) {
  for (const auto& row : kTypes) {
    if (row.gguf_id >= 0 && static_cast<std::uint32_t>(row.gguf_id) == gguf_id) return row.type;
  }
  return std::nullopt;
}

std::optional<DataType> data_type_from_safetensors(std::string_view name) {
  for (const auto& row : kTypes) {
    if (row.in_safetensors && row.name == name) return row.type;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> row_bytes(DataType type, std::uint64_t num_elements) {
  const auto& row = data_type_info(type);
  if (num_elements % row.block_elements != 0) return std::nullopt;
  return checked_mul(num_elements / row.block_elements, row.block_bytes);
}

std::int64_t TensorInfo::num_elements() const {
  std::int64_t n = 1;
  for (const auto extent : shape) n *= extent;
  return n;
}

std::int64_t TensorInfo::num_rows() const {
  std::int64_t n = 1;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
  return n;
}

std::string shape_to_string(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::optional<std::int64_t> checked_num_elements(std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxTensorRank) return std::nullopt;
  std::uint64_t n = 1;
  bool is_empty = false;
  for (const auto extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      is_empty = true;
      continue;
    }
    const auto product = checked_mul(n, static_cast<std::uint64_t>(extent));
    if (!product || *product > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    n = *product;
  }
  return is_empty ? 0 : static_cast<std::int64_t>(n);
}

}  // namespace sightline
