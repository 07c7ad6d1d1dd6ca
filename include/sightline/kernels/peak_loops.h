// Loops that show what one core does at most with the narrow number types: multiply-adds in registers and
// nothing else. The f32 loop is in each KernelTable.
#pragma once

#include <cstdint>
#include <string_view>

namespace sightline::kernels {

/// Runs `num_steps` rounds of independent multiply-adds; returns operations (a multiply and an add are two).
using PeakLoop = double (*)(std::int64_t num_steps);

/// `vdpbf16ps` on vectors of 512 bits; null where the CPU lacks it, or where `isa` (as SIGHTLINE_ISA takes
/// it; empty: the best) does not include avx512_bf16. Tile units (AMX) are no part of it.
[[nodiscard]] PeakLoop bf16_peak_loop(std::string_view isa);
/// `vpdpbusd` on vectors of 512 bits; the same with avx512_vnni.
[[nodiscard]] PeakLoop int8_peak_loop(std::string_view isa);

}  // namespace sightline::kernels
