// The two steps of the backward on one tile that the forward does not have: weights and gradients of logits
// from scores, and the products over rows. The other three products are the forward's two.
#pragma once

#include "kernels/softmax-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

HWY_INLINE void clear_vectors(float* row, int begin, int end) {
  for (int v = begin; v < end; ++v) store(zero(), row + v * kLanes);
}

template <bool kMasked, bool kNatural>
HWY_INLINE void backward_row(const SoftmaxBackwardArgs& args, const GroupRange& range, int row) {
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(row) * kTileKeys;
  float* scores = args.scores + at;
  float* d_weights = args.d_weights + at;
  const float* kept = args.kept == nullptr ? nullptr : args.kept + at;
  const std::uint64_t* words = kMasked ? args.words + 2 * row : nullptr;
  const Vec lse = broadcast(args.lse[row]);
  const Vec share = broadcast(args.share[row]);
  const Vec delta = broadcast(args.delta[row]);
  const Vec scale = broadcast(args.scale);
  const int begin = range.chunk_begin * kChunkVecs;
  const int end = range.chunk_end * kChunkVecs;
  for (int v = begin; v < end; ++v) {
    const Vec raw = load(scores + v * kLanes);
    Vec w = exp2_flushed(kNatural ? hn::Mul(hn::Sub(raw, lse), broadcast(kLog2E))
                                  : hn::Sub(hn::Mul(raw, scale), lse));
    w = hn::Mul(w, share);
    Vec d_weight = load(d_weights + v * kLanes);
    if (kept != nullptr) d_weight = hn::Mul(d_weight, load(kept + v * kLanes));
    Vec d_score = hn::Mul(w, hn::Sub(d_weight, delta));
    if (kept != nullptr) w = hn::Mul(w, load(kept + v * kLanes));
    if (kMasked) {
      const Mask visible = visible_lanes(words, v);
      w = hn::IfThenElseZero(visible, w);
      d_score = hn::IfThenElseZero(visible, d_score);
    }
    store(w, scores + v * kLanes);
    store(d_score, d_weights + v * kLanes);
  }
  clear_vectors(scores, 0, begin);
  clear_vectors(d_weights, 0, begin);
  clear_vectors(scores, end, kTileVecs);
  clear_vectors(d_weights, end, kTileVecs);
}

template <bool kNatural>
HWY_INLINE void backward_rows(const SoftmaxBackwardArgs& args) {
  for (int row = 0; row < args.num_rows; ++row) {
    const GroupRange& range = args.groups[row / kGroupRows];
    if (range.chunk_begin >= range.chunk_end) continue;
    if (range.all_visible) {
      backward_row<false, kNatural>(args, range, row);
    } else {
      backward_row<true, kNatural>(args, range, row);
    }
  }
}

static void softmax_backward(const SoftmaxBackwardArgs& args) {
  if (args.is_natural) {
    backward_rows<true>(args);
  } else {
    backward_rows<false>(args);
  }
}

// One block of outputs stays in registers while all rows pass by.
template <int kDims, int kVecs, bool kCareful>
HWY_INLINE void outer_block(const OuterArgs& args, int dim, int vec_idx) {
  float* out = args.out + static_cast<std::ptrdiff_t>(dim) * kTileKeys + vec_idx * kLanes;
  Vec acc[kDims][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kDims; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[i][v] = load(out + i * kTileKeys + v * kLanes);
  }
  for (int first = 0; first < args.num_rows; first += kGroupRows) {
    const GroupRange& range = args.groups[first / kGroupRows];
    if (range.chunk_begin * kChunkVecs >= vec_idx + kVecs || range.chunk_end * kChunkVecs <= vec_idx)
      continue;
    const bool all_seen = range.all_visible && range.chunk_begin * kChunkVecs <= vec_idx &&
                          range.chunk_end * kChunkVecs >= vec_idx + kVecs;
    const int rows = args.num_rows - first < kGroupRows ? args.num_rows - first : kGroupRows;
    const float* x = args.x + static_cast<std::ptrdiff_t>(first) * args.dims + dim * kGroupRows;
    const float* w = args.w + static_cast<std::ptrdiff_t>(first) * kTileKeys + vec_idx * kLanes;
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      Vec weight[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) weight[v] = load(w + r * kTileKeys + v * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kDims; ++i) {
        const Vec value = broadcast(x[i * kGroupRows + r]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) {
          const Vec sum = hn::MulAdd(value, weight[v], acc[i][v]);
          if (kCareful && !all_seen) {
            const Mask visible = visible_lanes(args.words + 2 * (first + r), vec_idx + v);
            acc[i][v] = hn::IfThenElse(visible, sum, acc[i][v]);
          } else {
            acc[i][v] = sum;
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kDims; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc[i][v], out + i * kTileKeys + v * kLanes);
  }
}

// kDims x kVecs accumulators, kVecs operands and a broadcast stay in registers.
inline constexpr int kOuterDims = kMaxRows == 12 ? 8 : 6;
inline constexpr int kOuterVecs = kMaxRows == 12 ? 3 : 2;

template <int kVecs, bool kCareful>
HWY_NOINLINE void outer_panel(const OuterArgs& args, int vec_idx) {
  int dim = 0;
  for (; dim + kOuterDims <= args.dims; dim += kOuterDims) {
    outer_block<kOuterDims, kVecs, kCareful>(args, dim, vec_idx);
  }
  for (; dim + 2 <= args.dims; dim += 2) outer_block<2, kVecs, kCareful>(args, dim, vec_idx);
  for (; dim < args.dims; ++dim) outer_block<1, kVecs, kCareful>(args, dim, vec_idx);
}

template <bool kCareful>
HWY_INLINE void outer_tile(const OuterArgs& args) {
  constexpr int kRest = kTileVecs % kOuterVecs;
  int vec_idx = 0;
  for (; vec_idx + kOuterVecs <= kTileVecs; vec_idx += kOuterVecs) {
    outer_panel<kOuterVecs, kCareful>(args, vec_idx);
  }
  if constexpr (kRest > 0) outer_panel<kRest, kCareful>(args, vec_idx);
}

static void attention_outer(const OuterArgs& args) {
  if (args.words != nullptr) {
    outer_tile<true>(args);
  } else {
    outer_tile<false>(args);
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
