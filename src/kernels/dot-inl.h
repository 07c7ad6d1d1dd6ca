// Dot products of bytes and of bf16 pairs: the CPU's own where the unit has them, else made of what it has.
// Integer results are exact, so all forms agree to the bit.
#pragma once

#include "kernels/vec-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

inline IntVec load_int(const void* p) { return hn::LoadU(IntTag(), static_cast<const std::int32_t*>(p)); }

/// Four bytes, or a pair of bf16, in every lane.
inline IntVec broadcast_word(const void* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, sizeof(word));
  return hn::Set(IntTag(), word);
}

// Four unsigned weights and four signed activations in each lane of 32 bits.
#if defined(__AVX512VNNI__)
inline constexpr bool kInt8Dot = true;
struct WeightBytes {
  IntVec bytes;
};
struct ActivationBytes {
  IntVec bytes;
};
HWY_INLINE WeightBytes weight_bytes(IntVec v) { return {v}; }
HWY_INLINE ActivationBytes activation_bytes(const std::int8_t* q) { return {broadcast_word(q)}; }
HWY_INLINE IntVec dot4(IntVec sum, WeightBytes w, ActivationBytes x) {
  return IntVec{_mm512_dpbusd_epi32(sum.raw, w.bytes.raw, x.bytes.raw)};
}
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// Bytes widened to 16 bits, even and odd ones apart: vpmaddubsw would saturate.
inline constexpr bool kInt8Dot = false;
struct WeightBytes {
  IntVec even, odd;
};
struct ActivationBytes {
  IntVec even, odd;
};
using ShortTag = hn::Repartition<std::int16_t, IntTag>;
HWY_INLINE WeightBytes weight_bytes(IntVec v) {
  const auto shorts = hn::BitCast(hn::RebindToUnsigned<ShortTag>(), v);
  return {hn::And(v, hn::Set(IntTag(), 0x00ff00ff)), hn::BitCast(IntTag(), hn::ShiftRight<8>(shorts))};
}
HWY_INLINE ActivationBytes activation_bytes(const std::int8_t* q) {
  const auto shorts = hn::BitCast(ShortTag(), broadcast_word(q));
  return {hn::BitCast(IntTag(), hn::ShiftRight<8>(hn::ShiftLeft<8>(shorts))),
          hn::BitCast(IntTag(), hn::ShiftRight<8>(shorts))};
}
HWY_INLINE IntVec dot4(IntVec sum, WeightBytes w, ActivationBytes x) {
#if HWY_TARGET <= HWY_AVX3
  const IntVec even{_mm512_madd_epi16(w.even.raw, x.even.raw)};
  const IntVec odd{_mm512_madd_epi16(w.odd.raw, x.odd.raw)};
#else
  const IntVec even{_mm256_madd_epi16(w.even.raw, x.even.raw)};
  const IntVec odd{_mm256_madd_epi16(w.odd.raw, x.odd.raw)};
#endif
  return hn::Add(sum, hn::Add(even, odd));
}
#else
inline constexpr bool kInt8Dot = false;
struct WeightBytes {
  IntVec byte[4];
};
struct ActivationBytes {
  IntVec byte[4];
};
HWY_INLINE WeightBytes weight_bytes(IntVec v) {
  const IntVec low = hn::Set(IntTag(), 255);
  return {{hn::And(v, low), hn::And(hn::ShiftRight<8>(v), low), hn::And(hn::ShiftRight<16>(v), low),
           hn::And(hn::ShiftRight<24>(v), low)}};
}
HWY_INLINE ActivationBytes activation_bytes(const std::int8_t* q) {
  return {
      {hn::Set(IntTag(), q[0]), hn::Set(IntTag(), q[1]), hn::Set(IntTag(), q[2]), hn::Set(IntTag(), q[3])}};
}
HWY_INLINE IntVec dot4(IntVec sum, WeightBytes w, ActivationBytes x) {
  for (int i = 0; i < 4; ++i) sum = hn::Add(sum, hn::Mul(w.byte[i], x.byte[i]));
  return sum;
}
#endif

#if defined(__AVX512BF16__)
inline constexpr bool kBf16Dot = true;
HWY_INLINE Vec dot2(Vec sum, IntVec w, IntVec x) {
  return Vec{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(x.raw), reinterpret_cast<__m512bh>(w.raw))};
}
#else
inline constexpr bool kBf16Dot = false;
#endif

}  // namespace sightline::kernels::SIGHTLINE_ISA
