#include "sightline/formats/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "sightline/base/half.h"

namespace sightline {

static_assert(std::endian::native == std::endian::little, "the formats are little endian and read in place");

namespace {

constexpr std::size_t kBlock = 32;

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <typename T>
void convert(const std::byte* src, std::span<float> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = static_cast<float>(load<T>(src + i * sizeof(T)));
}

void dequantize_f16(const std::byte* src, std::span<float> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = to_f32(load<F16>(src + 2 * i));
}

void dequantize_bf16(const std::byte* src, std::span<float> dst) {
  for (std::size_t i = 0; i < dst.size(); ++i) dst[i] = to_f32(load<Bf16>(src + 2 * i));
}

void dequantize_blocks(QuantKind kind, DataType type, const std::byte* src, std::span<float> dst) {
  const DataTypeInfo& info = data_type_info(type);
  QuantBlock block;
  for (std::size_t i = 0; i < dst.size(); i += info.block_elements, src += info.block_bytes) {
    split_block(kind, src, block);
    quant_values(kind, block, dst.data() + i);
  }
}

Result<void> quantize_q8_0(std::span<const float> src, std::byte* dst) {
  for (std::size_t i = 0; i < src.size(); i += kBlock, dst += 34) {
    float largest = 0;
    for (std::size_t j = 0; j < kBlock; ++j) {
      const float x = src[i + j];
      if (!std::isfinite(x)) {
        return fail(ErrorKind::kInvalidArgument, "quantize_row: value {} is {}, which Q8_0 cannot hold",
                    i + j, x);
      }
      largest = std::max(largest, std::fabs(x));
    }
    const float d = largest / 127.0F;
    const float inverse = d != 0 ? 1.0F / d : 0.0F;
    const F16 stored = to_f16(d);
    std::memcpy(dst, &stored, 2);
    for (std::size_t j = 0; j < kBlock; ++j) {
      // d may be subnormal, then its inverse is infinite; the product is clamped so that the cast is defined.
      const float q = std::fmin(std::fmax(std::round(src[i + j] * inverse), -127.0F), 127.0F);
      const auto byte = static_cast<std::int8_t>(std::isnan(q) ? 0.0F : q);
      std::memcpy(dst + 2 + j, &byte, 1);
    }
  }
  return {};
}

}  // namespace

Result<void> dequantize_row(DataType type, std::span<const std::byte> src, std::span<float> dst) {
  if (!is_readable(type)) {
    return fail(ErrorKind::kInvalidContent, "dequantize_row: type {} is not supported", to_string(type));
  }
  const auto expected = row_bytes(type, dst.size());
  if (!expected || *expected != src.size()) {
    return fail(ErrorKind::kInvalidArgument, "dequantize_row: {} bytes of {} do not hold {} values",
                src.size(), to_string(type), dst.size());
  }
  if (const auto kind = quant_kind(type)) {
    dequantize_blocks(*kind, type, src.data(), dst);
    return {};
  }
  switch (type) {
    case DataType::kF32:
      std::ranges::copy(src, std::as_writable_bytes(dst).begin());  // also of no bytes
      break;
    case DataType::kF16:
      dequantize_f16(src.data(), dst);
      break;
    case DataType::kBF16:
      dequantize_bf16(src.data(), dst);
      break;
    case DataType::kF64:
      convert<double>(src.data(), dst);
      break;
    case DataType::kI64:
      convert<std::int64_t>(src.data(), dst);
      break;
    case DataType::kI32:
      convert<std::int32_t>(src.data(), dst);
      break;
    case DataType::kI16:
      convert<std::int16_t>(src.data(), dst);
      break;
    case DataType::kI8:
      convert<std::int8_t>(src.data(), dst);
      break;
    case DataType::kU64:
      convert<std::uint64_t>(src.data(), dst);
      break;
    case DataType::kU32:
      convert<std::uint32_t>(src.data(), dst);
      break;
    case DataType::kU16:
      convert<std::uint16_t>(src.data(), dst);
      break;
    case DataType::kU8:
    case DataType::kBool:
      convert<std::uint8_t>(src.data(), dst);
      break;
    default:
      return fail(ErrorKind::kInternal, "dequantize_row: no decoder for {}", to_string(type));
  }
  return {};
}

Result<void> quantize_row(DataType type, std::span<const float> src, std::span<std::byte> dst) {
  const auto expected = row_bytes(type, src.size());
  if (!expected || *expected != dst.size()) {
    return fail(ErrorKind::kInvalidArgument, "quantize_row: {} values of {} do not fill {} bytes", src.size(),
                to_string(type), dst.size());
  }
  switch (type) {
    case DataType::kF32:
      std::ranges::copy(std::as_bytes(src), dst.begin());
      return {};
    case DataType::kF16:
      for (std::size_t i = 0; i < src.size(); ++i) {
        const F16 x = to_f16(src[i]);
        std::memcpy(&dst[2 * i], &x, 2);
      }
      return {};
    case DataType::kBF16:
      for (std::size_t i = 0; i < src.size(); ++i) {
        const Bf16 x = to_bf16(src[i]);
        std::memcpy(&dst[2 * i], &x, 2);
      }
      return {};
    case DataType::kQ8_0:
      return quantize_q8_0(src, dst.data());
    default:
      return fail(ErrorKind::kInvalidArgument, "quantize_row: writing {} is not supported", to_string(type));
  }
}

}  // namespace sightline
