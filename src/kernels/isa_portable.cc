// The portable table: plain C++ at the compiler's baseline. Multiply-adds round twice.
#define HWY_COMPILE_ONLY_EMU128
#define SIGHTLINE_ISA portable
#include "kernels/isa_tables.h"
#include "kernels/table-inl.h"

namespace sightline::kernels {
const KernelTable& portable_table() {
  static constexpr KernelTable kTable = portable::make_table(
      "portable", "vectors of 4 emulated in plain C++, multiply then add (not fused)", false);
  return kTable;
}
}  // namespace sightline::kernels
