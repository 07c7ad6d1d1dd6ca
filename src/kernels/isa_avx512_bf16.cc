// The avx512_bf16 table: needs BF16 beside all of AVX-512's and VNNI.
#if defined(__x86_64__)
#define SIGHTLINE_ISA avx512_bf16
#include "kernels/isa_tables.h"
#include "kernels/table-inl.h"

namespace sightline::kernels {
const KernelTable& avx512_bf16_table() {
  static constexpr KernelTable kTable = avx512_bf16::make_table(
      "avx512_bf16", "AVX-512 with int8 and bf16 dot products: vectors of 16, fused multiply-add", true);
  return kTable;
}
}  // namespace sightline::kernels
#endif
