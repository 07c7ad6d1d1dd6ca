// One block of a quantised row taken apart: what the block formats of files, the panels of linear layers and
// the integer dot products agree on. Knows neither how a file nor how a panel lays it out.
#pragma once

#include <cstdint>

#include "sightline/base/half.h"

namespace sightline {

/// The quantised types that linear layers run as they are stored. Names as in GGUF.
enum class QuantKind : std::uint8_t { kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ5_K, kQ6_K };
inline constexpr QuantKind kQuantKinds[] = {QuantKind::kQ8_0, QuantKind::kQ4_0, QuantKind::kQ4_1,
                                            QuantKind::kQ4_K, QuantKind::kQ5_K, QuantKind::kQ6_K};

/// How the values of a block follow from its parts.
struct QuantTraits {
  int block_values = 32;    ///< values that share d and m
  int stretch_values = 32;  ///< values that share one scale: block_values where there are no such scales
  int bits = 8;             ///< of q
  int zero = 0;             ///< the q that stands for 0
  bool has_min = false;     ///< m is there, with `min` where has_scales
  bool has_scales = false;  ///< `scale` is there
};

constexpr QuantTraits quant_traits(QuantKind kind) {
  switch (kind) {
    case QuantKind::kQ8_0:
      return {.bits = 8, .zero = 128};
    case QuantKind::kQ4_0:
      return {.bits = 4, .zero = 8};
    case QuantKind::kQ4_1:
      return {.bits = 4, .has_min = true};
    case QuantKind::kQ4_K:
      return {.block_values = 256, .bits = 4, .has_min = true, .has_scales = true};
    case QuantKind::kQ5_K:
      return {.block_values = 256, .bits = 5, .has_min = true, .has_scales = true};
    case QuantKind::kQ6_K:
      return {.block_values = 256, .stretch_values = 16, .bits = 6, .zero = 32, .has_scales = true};
  }
  return {};
}

struct QuantBlock {
  static constexpr int kMaxValues = 256;
  F16 d, m;
  std::int8_t scale[16];  ///< [stretch]
  std::uint8_t min[8];    ///< [stretch]
  std::uint8_t q[kMaxValues];
};

/// The factor of q - zero in stretch `stretch`, rounded once.
inline float quant_scale(const QuantTraits& traits, const QuantBlock& block, int stretch) {
  const float d = to_f32(block.d);
  return traits.has_scales ? d * static_cast<float>(block.scale[stretch]) : d;
}

/// What is added to every value of stretch `stretch`: m of Q4_1, -m * min of the K types, else 0.
inline float quant_min(const QuantTraits& traits, const QuantBlock& block, int stretch) {
  if (!traits.has_min) return 0.0F;
  const float m = to_f32(block.m);
  return traits.has_scales ? -(m * static_cast<float>(block.min[stretch])) : m;
}

/// Writes all values: scale * (q - zero) + min, the product rounded before the addition.
/// Source: ggml-quants.c, dequantize_row_q8_0 and the like.
inline void quant_values(QuantKind kind, const QuantBlock& block, float* values) {
  const QuantTraits traits = quant_traits(kind);
  for (int begin = 0; begin < traits.block_values; begin += traits.stretch_values) {
    const int stretch = begin / traits.stretch_values;
    const float scale = quant_scale(traits, block, stretch);
    const float min = quant_min(traits, block, stretch);
    for (int i = begin; i < begin + traits.stretch_values; ++i) {
      const float value = scale * static_cast<float>(int{block.q[i]} - traits.zero);
      values[i] = traits.has_min ? value + min : value;
    }
  }
}

}  // namespace sightline
