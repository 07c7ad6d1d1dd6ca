// How the kernels walk the pairs that a RopeSpec rotates, and the positions they can take; shared by the
// cache, which rotates keys when they are stored, and attention, which rotates the rest.
#pragma once

#include <cstdint>
#include <limits>

#include "sightline/kernels/rope.h"
#include "sightline/spec/rope.h"

namespace sightline {

/// Largest `pos` of a stored or attended token: kernels keep positions in 32 bits.
inline constexpr std::int64_t kMaxPos = std::numeric_limits<std::int32_t>::max();

/// Strides of rope_pair() as the kernels take them; no pairs for pairing none.
[[nodiscard]] constexpr kernels::RotaryPairs rotary_pairs(const RopeSpec& rope) {
  if (rope.pairing == RopePairing::kNone) return {};
  const RopePair first = rope_pair(rope, 0);
  const RopePair second = rope_pair(rope, 1);
  return {rope.rotary_dim / 2, second.first - first.first, first.second - first.first};
}

}  // namespace sightline
