// Activations to int8 with one scale per row and block of 32.
#pragma once

#include "kernels/dot-inl.h"
#include "sightline/kernels/quant_panel.h"

namespace sightline::kernels::SIGHTLINE_ISA {

HWY_INLINE void quantize_block(const float* x, int zero, bool two_stretches, ActivationBlock& out) {
  constexpr int kVecs = kQuantInputs / kLanes;
  const IntTag ints;
  IntVec largest_bits = hn::Zero(ints);  // magnitudes order as integers, with infinity and NaN on top
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    largest_bits = hn::Max(largest_bits, hn::BitCast(ints, hn::Abs(load(x + v * kLanes))));
  }
  const auto bits = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(ints, largest_bits)));
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof(largest));
  const bool is_finite = bits < 0x7f800000U;
  const bool is_zero = !(largest >= 0x1p-100F) || !is_finite;
  const Vec inverse = broadcast(is_zero ? 0.0F : 127.0F / largest);
  std::int32_t sums[2] = {};
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    IntVec q = hn::Zero(ints);
    if (!is_zero) q = nearest_int(hn::Mul(load(x + v * kLanes), inverse));
    hn::StoreU(hn::DemoteTo(hn::Rebind<std::int8_t, IntTag>(), q), hn::Rebind<std::int8_t, IntTag>(),
               out.q + v * kLanes);
    sums[v * kLanes / 16] += hn::GetLane(hn::SumOfLanes(ints, q));
  }
  out.d = is_finite ? (is_zero ? 0.0F : largest / 127.0F) : __builtin_nanf("");
  out.d_sum = out.d * static_cast<float>(sums[0] + sums[1]);
  out.start[0] = -zero * (two_stretches ? sums[0] : sums[0] + sums[1]);
  out.start[1] = -zero * (two_stretches ? sums[1] : 0);
}

static void quantize_rows(const QuantizeArgs& args) {
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    const float* const x = args.x + row * args.x_stride;
    for (std::int64_t b = 0; b < args.num_blocks; ++b) {
      quantize_block(x + b * kQuantInputs, args.zero, args.has_two_stretches,
                     args.out[b * args.num_rows + row]);
    }
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
