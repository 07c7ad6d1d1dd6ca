#include "sightline/base/rng.h"

#include <cmath>
#include <numbers>

namespace sightline {

double Rng::next_normal() {
  const double u = 1.0 - next_uniform();  // (0, 1]: log is finite
  const double v = next_uniform();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace sightline
