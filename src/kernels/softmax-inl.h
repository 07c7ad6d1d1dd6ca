// Between the two products: logits that are more than a scale, and the online softmax of one tile.
#pragma once

#include "kernels/scores-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

inline constexpr float kLog2E = 1.44269504F;
inline constexpr float kMinusInfinity = -__builtin_inff();

// tanh with relative error of a few units in the last place: an odd polynomial near 0 (Cephes tanhf), else
// 1 - 2 / (e^(2|y|) + 1).
HWY_INLINE Vec tanh_vec(Vec y) {
  const Vec magnitude = hn::Abs(y);
  const Vec z = hn::Mul(y, y);
  Vec near = broadcast(-5.70498872745e-3F);
  near = hn::MulAdd(near, z, broadcast(2.06390887954e-2F));
  near = hn::MulAdd(near, z, broadcast(-5.37397155531e-2F));
  near = hn::MulAdd(near, z, broadcast(1.33314422036e-1F));
  near = hn::MulAdd(near, z, broadcast(-3.33332819422e-1F));
  near = hn::MulAdd(hn::Mul(near, z), y, y);
  // Beyond 10 the result rounds to 1; NaN passes the clamp. e^(-2|y|) <= 1 keeps exp2's range.
  const Vec clamped = hn::IfThenElse(hn::Gt(magnitude, broadcast(10.0F)), broadcast(10.0F), magnitude);
  const Vec e = exp2_flushed(hn::Mul(clamped, broadcast(-2.0F * kLog2E)));
  const Vec one = broadcast(1.0F);
  const Vec far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), y);
  return hn::IfThenElse(hn::Lt(magnitude, broadcast(0.625F)), near, far);
}

static void modify_scores(const ModifyArgs& args) {
  const Vec scale = broadcast(args.scale);
  const Vec softcap = broadcast(args.softcap);
  const Vec slope = broadcast(args.alibi_slope);
  const IntVec q_pos = hn::Set(IntTag(), args.q_pos);
  for (int key = args.key_begin; key < args.key_end; key += kLanes) {
    Vec s = hn::Mul(load(args.scores + key), scale);
    if (args.softcap > 0.0F) {
      const Vec t = tanh_vec(hn::Div(s, softcap));
      if (args.cap_slope != nullptr) store(hn::NegMulAdd(t, t, broadcast(1.0F)), args.cap_slope + key);
      s = hn::Mul(softcap, t);
    }
    if (args.bias != nullptr) s = hn::Add(s, load(args.bias + key));
    if (args.has_alibi) {
      const IntVec distance = hn::Sub(hn::LoadU(IntTag(), args.k_pos + key), q_pos);
      s = hn::MulAdd(slope, hn::ConvertTo(Tag(), distance), s);
    }
    store(s, args.scores + key);
  }
}

// 2^difference for a difference of two even integers or infinities; exactly 0 below -126, NaN for NaN.
HWY_INLINE float power_of_two(float difference) {
  if (difference != difference) return difference;
  if (difference < -126.0F) return 0.0F;
  const std::int32_t bits = (static_cast<std::int32_t>(difference) + 127) << 23;
  float out;
  __builtin_memcpy(&out, &bits, sizeof(out));
  return out;
}

template <bool kMasked, bool kNatural>
HWY_INLINE void move_maximum(const SoftmaxArgs& args, const GroupRange& range, int row) {
  const float* scores = args.scores + static_cast<std::ptrdiff_t>(row) * kTileKeys;
  const std::uint64_t* words = kMasked ? args.words + 2 * row : nullptr;
  const Vec minus_infinity = broadcast(kMinusInfinity);
  Vec best = minus_infinity;
  for (int v = range.chunk_begin * kChunkVecs; v < range.chunk_end * kChunkVecs; ++v) {
    Vec s = load(scores + v * kLanes);
    if (kMasked) s = hn::IfThenElse(visible_lanes(words, v), s, minus_infinity);
    best = hn::Max(best, s);
  }
  const float old_max = args.row_max[row];
  float tile_max = hn::GetLane(hn::MaxOfLanes(Tag(), best));
  // In log2 units up to an even integer: every rescale is then an exact power of two.
  if (!kNatural) tile_max = 2.0F * __builtin_ceilf(tile_max * args.scale * 0.5F);
  const float new_max = tile_max > old_max ? tile_max : old_max;
  args.row_max[row] = new_max;
  if (new_max == old_max) {
    args.rescale[row] = 1.0F;
  } else if (kNatural) {
    args.rescale[row] = hn::GetLane(exp2_flushed(broadcast((old_max - new_max) * kLog2E)));
  } else {
    args.rescale[row] = power_of_two(old_max - new_max);
  }
}

template <bool kMasked, bool kNatural>
HWY_INLINE void add_weights(const SoftmaxArgs& args, const GroupRange& range, int row) {
  float* scores = args.scores + static_cast<std::ptrdiff_t>(row) * kTileKeys;
  const std::uint64_t* words = kMasked ? args.words + 2 * row : nullptr;
  // A row that has seen nothing (or only minus infinity) has no maximum to subtract.
  const float row_max = args.row_max[row];
  const Vec max = broadcast(row_max == kMinusInfinity ? 0.0F : row_max);
  const Vec scale = broadcast(args.scale);
  float* row_sum = args.row_sum + static_cast<std::ptrdiff_t>(row) * kMaxSumLanes;
  Vec sum = hn::Mul(load(row_sum), broadcast(args.rescale[row]));
  for (int v = range.chunk_begin * kChunkVecs; v < range.chunk_end * kChunkVecs; ++v) {
    const Vec raw = load(scores + v * kLanes);
    // Natural logits far from 0 that differ by little: their difference is exact, and a change of units
    // before it would round at their size. A mere scale is rounded before the subtraction, as the maximum
    // was: a fused one would differ from it by whole units when scores are large.
    Vec p = exp2_flushed(kNatural ? hn::Mul(hn::Sub(raw, max), broadcast(kLog2E))
                                  : hn::Sub(hn::Mul(raw, scale), max));
    if (kMasked) p = hn::IfThenElseZero(visible_lanes(words, v), p);
    store(p, scores + v * kLanes);
    sum = hn::Add(sum, p);
  }
  store(sum, row_sum);
}

// All maxima of a group before its weights: a maximum is one long chain, and those of the rows overlap.
template <bool kMasked, bool kNatural>
HWY_INLINE void softmax_group(const SoftmaxArgs& args, const GroupRange& range, int begin, int end) {
  for (int row = begin; row < end; ++row) move_maximum<kMasked, kNatural>(args, range, row);
  for (int row = begin; row < end; ++row) add_weights<kMasked, kNatural>(args, range, row);
}

template <bool kNatural>
HWY_INLINE void softmax_rows(const SoftmaxArgs& args) {
  for (int row = 0; row < args.num_rows; row += kGroupRows) {
    const GroupRange& range = args.groups[row / kGroupRows];
    const int end = row + kGroupRows < args.num_rows ? row + kGroupRows : args.num_rows;
    if (range.chunk_begin >= range.chunk_end) {
      for (int r = row; r < end; ++r) args.rescale[r] = 1.0F;
    } else if (range.all_visible) {
      softmax_group<false, kNatural>(args, range, row, end);
    } else {
      softmax_group<true, kNatural>(args, range, row, end);
    }
  }
}

static void softmax_tile(const SoftmaxArgs& args) {
  if (args.is_natural) {
    softmax_rows<true>(args);
  } else {
    softmax_rows<false>(args);
  }
}

// Pairwise from the halves, the same for every call.
static float sum_lanes(const float* row_sum) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = row_sum[i];
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
