// Vectors for the kernel templates: one width per translation unit, chosen statically by its compiler flags.
// Included only by isa_*.cc, each inside its own namespace SIGHTLINE_ISA; uses nothing of std that the
// linker could share between instruction sets.
#pragma once

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "sightline/kernels/kernel_table.h"

#ifndef SIGHTLINE_ISA
#error "define SIGHTLINE_ISA before including kernel templates"
#endif

namespace sightline::kernels::SIGHTLINE_ISA {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<Tag>;
using Vec = hn::Vec<Tag>;
using IntVec = hn::Vec<IntTag>;
using Mask = hn::Mask<Tag>;

inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));
// Rows of a micro-kernel: rows x 2 accumulators, 2 operands and a broadcast stay in registers.
inline constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 12 : 6;
static_assert(kChunkKeys % kLanes == 0 && kMaxSumLanes % kLanes == 0);

HWY_INLINE Vec zero() { return hn::Zero(Tag()); }
HWY_INLINE Vec broadcast(float x) { return hn::Set(Tag(), x); }
HWY_INLINE Vec load(const float* p) { return hn::LoadU(Tag(), p); }
HWY_INLINE void store(Vec v, float* p) { hn::StoreU(v, Tag(), p); }

// Nearest integer, ties to even. NaN and what is out of range give an integer whose low 9 bits are 0, so that
// adding it as an exponent leaves a NaN a NaN.
HWY_INLINE IntVec nearest_int(Vec x) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return IntVec{_mm512_cvtps_epi32(x.raw)};
#elif HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86
  return IntVec{_mm256_cvtps_epi32(x.raw)};
#else
  const Vec kMagic = broadcast(12582912.0F);  // 1.5 * 2^23: the sum's low bits are the integer
  const auto in_range = hn::Lt(hn::Abs(x), broadcast(2097152.0F));
  const IntVec bits = hn::BitCast(IntTag(), hn::Add(hn::IfThenElseZero(in_range, x), kMagic));
  return hn::Sub(bits, hn::BitCast(IntTag(), kMagic));
#endif
}

// x less its nearest integer (exact), and p times 2 to that integer where x is not below -126, else 0. "Not
// less" is true for NaN, which stays one.
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
HWY_INLINE Vec fraction(Vec x) { return Vec{_mm512_reduce_ps(x.raw, 0)}; }
HWY_INLINE Vec times_power(Vec p, Vec x, Vec f) {
  const __mmask16 kept = _mm512_cmp_ps_mask(x.raw, _mm512_set1_ps(-126.0F), _CMP_NLT_UQ);
  return Vec{_mm512_maskz_scalef_ps(kept, p.raw, hn::Sub(x, f).raw)};
}
#else
HWY_INLINE Vec fraction(Vec x) { return hn::Sub(x, hn::ConvertTo(Tag(), nearest_int(x))); }
HWY_INLINE Vec times_power(Vec p, Vec x, Vec) {
  const IntVec bits = hn::Add(hn::BitCast(IntTag(), p), hn::ShiftLeft<23>(nearest_int(x)));
  return hn::IfThenZeroElse(hn::Lt(x, broadcast(-126.0F)), hn::BitCast(Tag(), bits));
}
#endif

// 2^x for x <= about 1: exactly 0 below -126 and for minus infinity, NaN for NaN. Degree 5 on [-1/2, 1/2],
// least maximal relative error with p(0) = 1: 9.1e-8, with rounding 1.6e-7.
HWY_INLINE Vec exp2_flushed(Vec x) {
  const Vec f = fraction(x);
  Vec p = broadcast(1.32647308e-3F);
  p = hn::MulAdd(p, f, broadcast(9.67151299e-3F));
  p = hn::MulAdd(p, f, broadcast(5.55073358e-2F));
  p = hn::MulAdd(p, f, broadcast(2.40222424e-1F));
  p = hn::MulAdd(p, f, broadcast(6.93147004e-1F));
  p = hn::MulAdd(p, f, broadcast(1.0F));
  return times_power(p, x, f);
}

// Asks for memory that is read later, a few cache lines at each step of a loop that computes: into the second
// cache, so that what the loop reads stays in the first. Addresses past the end of an array are harmless.
class Prefetcher {
 public:
  static constexpr int kLine = 64;

  Prefetcher() = default;
  /// `bytes` from `begin` on, in `num_steps` steps.
  Prefetcher(const void* begin, std::int64_t bytes, std::int64_t num_steps)
      : next_(static_cast<const char*>(begin)),
        lines_((bytes + num_steps * kLine - 1) / (num_steps * kLine)) {}

  HWY_INLINE void step() {
    for (std::int64_t i = 0; i < lines_; ++i, next_ += kLine) __builtin_prefetch(next_, 0, 2);
  }

 private:
  const char* next_ = nullptr;
  std::int64_t lines_ = 0;
};

// Visible lanes of vector `vec_idx` of a tile from its row of bits.
HWY_INLINE Mask visible_lanes(const std::uint64_t* words, int vec_idx) {
  const int first = vec_idx * kLanes;
  const std::uint64_t bits = words[first / 64] >> (first % 64);
  std::uint8_t bytes[8];
  __builtin_memcpy(bytes, &bits, sizeof(bytes));
  return hn::LoadMaskBits(Tag(), bytes);
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
