// The tables that the isa_*.cc files fill; only dispatch.cc may call those that the CPU supports.
#pragma once

#include "sightline/kernels/kernel_table.h"

namespace sightline::kernels {
[[nodiscard]] const KernelTable& portable_table();
[[nodiscard]] const KernelTable& avx2_table();
[[nodiscard]] const KernelTable& avx512_table();
[[nodiscard]] const KernelTable& avx512_vnni_table();
[[nodiscard]] const KernelTable& avx512_bf16_table();
}  // namespace sightline::kernels
