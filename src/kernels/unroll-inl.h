// Loops over numbers that the compiler knows, and the choice of a number of rows that it knows.
#pragma once

#include "kernels/vec-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

#if defined(__GNUC__)
#define SIGHTLINE_INLINE_LAMBDA __attribute__((always_inline))
#else
#define SIGHTLINE_INLINE_LAMBDA
#endif

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

/// body(Constant<kBegin>()), ..., body(Constant<kEnd - 1>()).
template <int kBegin, int kEnd, class Body>
HWY_INLINE void unrolled(const Body& body) {
  if constexpr (kBegin < kEnd) {
    body(Constant<kBegin>());
    unrolled<kBegin + 1, kEnd>(body);
  }
}

/// body(Constant<n>()) with the first n of kCounts that is neither above `left` nor above kMost; returns n.
/// The counts descend to 1.
template <int kMost, int kCount, int... kCounts, class Body>
HWY_INLINE std::int64_t with_row_count(std::int64_t left, const Body& body) {
  if constexpr (kCount <= kMost) {
    if (kCount == 1 || left >= kCount) {
      body(Constant<kCount>());
      return kCount;
    }
  }
  if constexpr (sizeof...(kCounts) > 0) return with_row_count<kMost, kCounts...>(left, body);
  return 0;
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
