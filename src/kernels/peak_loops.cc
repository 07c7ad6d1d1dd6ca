#include "sightline/kernels/peak_loops.h"

#include "kernels/peak_units.h"

namespace sightline::kernels {

PeakLoop bf16_peak_loop([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if ((isa.empty() || isa == "avx512_bf16") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bf16")) {
    return avx512_bf16_peak;
  }
#endif
  return nullptr;
}

PeakLoop int8_peak_loop([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  if ((isa.empty() || isa == "avx512_bf16" || isa == "avx512_vnni") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512vnni")) {
    return avx512_vnni_peak;
  }
#endif
  return nullptr;
}

}  // namespace sightline::kernels
