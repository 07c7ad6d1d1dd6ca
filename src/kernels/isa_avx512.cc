// The AVX-512 table: needs F, BW, DQ, VL and CD beside all of AVX2's.
#if defined(__x86_64__)
#define SIGHTLINE_ISA avx512
#include "kernels/isa_tables.h"
#include "kernels/table-inl.h"

namespace sightline::kernels {
const KernelTable& avx512_table() {
  static constexpr KernelTable kTable =
      avx512::make_table("avx512", "AVX-512 F/BW/DQ/VL: vectors of 16, fused multiply-add", true);
  return kTable;
}
}  // namespace sightline::kernels
#endif
