// Random arrays for rows; the same generator, the same numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/base/rng.h"

namespace sightline::bench {

/// `count` numbers of the standard normal distribution.
[[nodiscard]] inline std::vector<float> normals(std::int64_t count, Rng& rng) {
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& x : out) x = static_cast<float>(rng.next_normal());
  return out;
}

}  // namespace sightline::bench
