// Conversions of 16-bit floating point numbers: nearest, ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace sightline {

/// bfloat16 as its bits: the upper half of an f32.
struct Bf16 {
  std::uint16_t bits = 0;
  bool operator==(const Bf16&) const = default;
};

[[nodiscard]] constexpr float to_f32(Bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

[[nodiscard]] constexpr Bf16 to_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16)};
}

/// IEEE binary16 as its bits.
struct F16 {
  std::uint16_t bits = 0;
  bool operator==(const F16&) const = default;
};

[[nodiscard]] float to_f32(F16 x);
[[nodiscard]] F16 to_f16(float x);

}  // namespace sightline
