#include "sightline/base/huge_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace sightline {

void prefer_huge_pages([[maybe_unused]] std::span<std::byte> bytes) {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (address + bytes.size()) / kHugePage * kHugePage;
  if (begin >= end) return;
  (void)madvise(bytes.data() + (begin - address), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace sightline
