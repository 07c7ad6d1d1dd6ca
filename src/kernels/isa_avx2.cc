// The AVX2 table: needs AVX2, FMA, F16C and BMI2.
#if defined(__x86_64__)
#define SIGHTLINE_ISA avx2
#include "kernels/isa_tables.h"
#include "kernels/table-inl.h"

namespace sightline::kernels {
const KernelTable& avx2_table() {
  static constexpr KernelTable kTable =
      avx2::make_table("avx2", "AVX2 and FMA: vectors of 8, fused multiply-add", true);
  return kTable;
}
}  // namespace sightline::kernels
#endif
