// The linear micro-kernel: rows x 32 columns, one chain per output over k ascending.
#pragma once

#include "kernels/unroll-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

inline constexpr std::int64_t kPrefetchInputs = 16;  // between two steps of a Prefetcher

// kRows rows against kVecs vectors of columns. Rows of x lie x_stride apart, or side by side (packed).
template <int kRows, int kVecs, bool kPacked>
HWY_INLINE void linear_block(const float* x, std::ptrdiff_t x_stride, const float* panel, std::int64_t num_k,
                             float* y, std::ptrdiff_t y_stride, bool accumulate, Prefetcher& ahead) {
  Vec acc[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = accumulate ? load(y + r * y_stride + v * kLanes) : zero();
    }
  }
  // One base per three rows: the others are base + stride and base + 2 stride, which are addressing modes.
  constexpr int kBases = (kRows + 2) / 3;
  const float* base[kBases];
#pragma GCC unroll 4
  for (int b = 0; b < kBases; ++b) base[b] = x + 3 * b * x_stride;
  for (std::int64_t begin = 0; begin < num_k; begin += kPrefetchInputs) {
    const std::int64_t end = begin + kPrefetchInputs < num_k ? begin + kPrefetchInputs : num_k;
    ahead.step();
#pragma GCC unroll 2
    for (std::int64_t k = begin; k < end; ++k) {
      Vec w[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) w[v] = load(panel + k * kPanelColumns + v * kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Vec value = broadcast(kPacked ? x[k * kGroupRows + r] : base[r / 3][k + (r % 3) * x_stride]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(value, w[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc[r][v], y + r * y_stride + v * kLanes);
  }
}

template <int kRows, bool kPacked>
HWY_NOINLINE void linear_columns(const float* x, std::ptrdiff_t x_stride, const LinearArgs& args, float* y,
                                 Prefetcher& ahead) {
  constexpr int kVecs = kLanes * 4 <= kPanelColumns && kRows <= 2 ? 4 : 2;
  for (int column = 0; column < kPanelColumns; column += kVecs * kLanes) {
    linear_block<kRows, kVecs, kPacked>(x, x_stride, args.panel + column, args.num_k, y + column,
                                        args.y_stride, args.accumulate, ahead);
  }
}

template <bool kPacked>
HWY_INLINE void linear_rows_as(const LinearArgs& args) {
  const std::int64_t num_groups = (args.num_rows + kMaxRows - 1) / kMaxRows;
  const std::int64_t steps = (args.num_k + kPrefetchInputs - 1) / kPrefetchInputs;
  Prefetcher ahead;
  if (args.prefetch_bytes > 0) ahead = Prefetcher(args.prefetch, args.prefetch_bytes, num_groups * steps);
  std::int64_t row = 0;
  while (row < args.num_rows) {
    // Packed rows lie in groups of kGroupRows; a step never crosses a group.
    const std::int64_t in_group = kPacked ? row % kGroupRows : 0;
    std::int64_t left = args.num_rows - row;
    if (kPacked && left > kGroupRows - in_group) left = kGroupRows - in_group;
    const float* x =
        kPacked ? args.x_packed + (row - in_group) * args.num_k + in_group : args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    row += with_row_count<kMaxRows, 12, 8, 6, 4, 3, 2, 1>(left, [&](auto count) SIGHTLINE_INLINE_LAMBDA {
      linear_columns<decltype(count)::value, kPacked>(x, args.x_stride, args, y, ahead);
    });
  }
}

static void linear_rows(const LinearArgs& args) {
  if (args.x_packed != nullptr) {
    linear_rows_as<true>(args);
  } else {
    linear_rows_as<false>(args);
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
