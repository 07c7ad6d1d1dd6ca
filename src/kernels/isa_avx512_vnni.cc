// The avx512_vnni table: needs VNNI beside all of AVX-512's.
#if defined(__x86_64__)
#define SIGHTLINE_ISA avx512_vnni
#include "kernels/isa_tables.h"
#include "kernels/table-inl.h"

namespace sightline::kernels {
const KernelTable& avx512_vnni_table() {
  static constexpr KernelTable kTable = avx512_vnni::make_table(
      "avx512_vnni", "AVX-512 with int8 dot products: vectors of 16, fused multiply-add", true);
  return kTable;
}
}  // namespace sightline::kernels
#endif
