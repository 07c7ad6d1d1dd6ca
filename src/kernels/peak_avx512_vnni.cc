// The int8 peak: vpdpbusd in registers. Compiled with its own flags; peak_loops.cc asks the CPU first.
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/peak_units.h"

namespace sightline::kernels {

double avx512_vnni_peak(std::int64_t num_steps) {
  constexpr int kAccumulators = 24;
  __m512i acc[kAccumulators];
#pragma GCC unroll 24
  for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm512_set1_epi32(i);
  __m512i a = _mm512_set1_epi8(3);
  __m512i b = _mm512_set1_epi8(1);
  asm volatile("" : "+v"(a), "+v"(b));
  for (std::int64_t step = 0; step < num_steps; ++step) {
#pragma GCC unroll 24
    for (int i = 0; i < kAccumulators; ++i) {
      // Written out: from the intrinsic g++ 12 keeps the sums in memory and shows half the peak.
      asm("vpdpbusd %2, %1, %0" : "+v"(acc[i]) : "v"(a), "v"(b));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kAccumulators; ++i) acc[0] = _mm512_add_epi32(acc[0], acc[i]);
  volatile int sink = _mm512_cvtsi512_si32(acc[0]);
  static_cast<void>(sink);
  return 2.0 * 64 * kAccumulators * static_cast<double>(num_steps);
}

}  // namespace sightline::kernels
#endif
