// The bf16 peak: vdpbf16ps in registers. Compiled with its own flags; peak_loops.cc asks the CPU first.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/peak_units.h"

namespace sightline::kernels {

double avx512_bf16_peak(std::int64_t num_steps) {
  constexpr int kAccumulators = 24;
  __m512 acc[kAccumulators];
#pragma GCC unroll 24
  for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  // As the compiler does not know the operands, it computes nothing ahead of the loop.
  __m512i a = _mm512_set1_epi16(0x3c00);
  __m512i b = _mm512_set1_epi16(0x3b80);
  asm volatile("" : "+v"(a), "+v"(b));
  for (std::int64_t step = 0; step < num_steps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < kAccumulators; ++i) {
      acc[i] = _mm512_dpbf16_ps(acc[i], reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kAccumulators; ++i) acc[0] = _mm512_add_ps(acc[0], acc[i]);
  volatile float sink = _mm512_cvtss_f32(acc[0]);
  static_cast<void>(sink);
  return 2.0 * 32 * kAccumulators * static_cast<double>(num_steps);
}

}  // namespace sightline::kernels
#endif
