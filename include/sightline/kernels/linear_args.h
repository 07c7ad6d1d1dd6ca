// Arguments of the kernels of linear layers in bf16 and in quantised weights; those of f32 are in
// kernel_table.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sightline/base/quant_block.h"

namespace sightline::kernels {

/// 32 numbers of one row for integer dot products: x = d * q to nearest.
struct ActivationBlock {
  std::int8_t q[32];
  float d;                ///< NaN where one of the 32 is not finite
  float d_sum;            ///< d * (sum of q): what minima of weights are multiplied with
  std::int32_t start[2];  ///< -zero * (sum of q), by stretch: what the sum of unsigned products starts with
};

/// Quantises rows per block of 32: d = max|x| / 127, q = x * (127 / max|x|) to the nearest integer, ties to
/// even. Blocks whose largest is below 2^-100 become 0. The same bits on every instruction set.
struct QuantizeArgs {
  const float* x = nullptr;  ///< [num_rows, 32 * num_blocks], row stride x_stride
  std::ptrdiff_t x_stride = 0;
  std::int64_t num_rows = 0;  ///< at most kQuantRows
  std::int64_t num_blocks = 0;
  int zero = 0;                    ///< of the weights' kind
  bool has_two_stretches = false;  ///< a stretch of the weights' kind is 16 inputs, not 32 or more
  ActivationBlock* out = nullptr;  ///< [num_blocks][num_rows]
};

inline constexpr int kQuantRows = 8;  ///< rows whose blocks lie side by side

/// One panel of quantised weights: y[i][n] = sum over blocks of 32 ascending, one chain per output:
///   y = (scale * x.d) * (integer dot product) + y; then, where the kind has minima, y = min * x.d_sum + y
/// (fused where the table says so); a stretch of 16 counts as a block. The dot products are exact, so a row's
/// bits do not depend on num_rows.
struct LinearQuantArgs {
  QuantKind kind = QuantKind::kQ8_0;
  const ActivationBlock* x = nullptr;   ///< [ceil(num_rows / kQuantRows)][num_blocks][rows of that tile]
  const std::uint8_t* panel = nullptr;  ///< as quant_panel.h lays it out
  float* y = nullptr;                   ///< [num_rows, 32]
  std::int64_t num_rows = 0;
  std::int64_t num_blocks = 0;
};

/// One panel of bf16 weights: y[i][n] = (accumulate ? y[i][n] : 0) + sum over pairs of inputs ascending, one
/// chain per output. Tables with bf16_dot multiply pairs of bf16 activations (vdpbf16ps: the second of a
/// pair first, each product added with one rounding; subnormals count as 0); the others multiply f32
/// activations by the same weights, first of the pair first.
struct LinearBf16Args {
  const void* x = nullptr;               ///< rows as pack_bf16_row writes them
  std::ptrdiff_t x_stride = 0;           ///< in pairs
  const std::uint16_t* panel = nullptr;  ///< [num_pairs][32][2]
  float* y = nullptr;                    ///< [num_rows, 32]
  std::int64_t num_rows = 0;
  std::int64_t num_pairs = 0;
  bool accumulate = false;
  const void* prefetch = nullptr;  ///< as in LinearArgs
  std::int64_t prefetch_bytes = 0;
};

}  // namespace sightline::kernels
