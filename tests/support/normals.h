// Arrays of random numbers for tests; the same seed, the same numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/base/rng.h"

namespace sightline::test {

/// `count` numbers of the standard normal distribution, times `scale`.
inline std::vector<float> normals(std::int64_t count, std::uint64_t seed, double scale = 1.0) {
  Rng rng(seed);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& x : out) x = static_cast<float>(rng.next_normal() * scale);
  return out;
}

}  // namespace sightline::test
