// The loops that the peak_*.cc units fill; only peak_loops.cc may call those that the CPU supports.
#pragma once

#include "sightline/kernels/peak_loops.h"

namespace sightline::kernels {
[[nodiscard]] double avx512_bf16_peak(std::int64_t num_steps);
[[nodiscard]] double avx512_vnni_peak(std::int64_t num_steps);
}  // namespace sightline::kernels
