// Rows side by side: from [rows][dims] to [dims][rows], as the products of attention read queries and keys.
#pragma once

#include "kernels/vec-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

#if HWY_TARGET == HWY_SCALAR
inline constexpr int kPackStep = 1;
HWY_INLINE void transpose_block(const float* const* rows, int dim, float* to, int) { to[0] = rows[0][dim]; }
#else
inline constexpr int kPackStep = 4;

using Quad = hn::CappedTag<float, 4>;

// Four dims of four rows.
HWY_INLINE void transpose_block(const float* const* rows, int dim, float* to, int width) {
  constexpr Quad d;
  const auto a = hn::LoadU(d, rows[0] + dim);
  const auto b = hn::LoadU(d, rows[1] + dim);
  const auto e = hn::LoadU(d, rows[2] + dim);
  const auto f = hn::LoadU(d, rows[3] + dim);
  const auto ab_low = hn::InterleaveLower(d, a, b);
  const auto ef_low = hn::InterleaveLower(d, e, f);
  const auto ab_high = hn::InterleaveUpper(d, a, b);
  const auto ef_high = hn::InterleaveUpper(d, e, f);
  hn::StoreU(hn::ConcatLowerLower(d, ef_low, ab_low), d, to);
  hn::StoreU(hn::ConcatUpperUpper(d, ef_low, ab_low), d, to + width);
  hn::StoreU(hn::ConcatLowerLower(d, ef_high, ab_high), d, to + 2 * width);
  hn::StoreU(hn::ConcatUpperUpper(d, ef_high, ab_high), d, to + 3 * width);
}
#endif

static void pack_columns(const float* const* rows, int width, int dims, float* to) {
  int dim = 0;
  for (; dim + kPackStep <= dims; dim += kPackStep) {
    for (int row = 0; row < width; row += kPackStep) {
      transpose_block(rows + row, dim, to + dim * width + row, width);
    }
  }
  for (; dim < dims; ++dim) {
    for (int row = 0; row < width; ++row) to[dim * width + row] = rows[row][dim];
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
