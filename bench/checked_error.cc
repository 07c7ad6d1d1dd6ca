#include "bench/checked_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sightline::bench {

void CheckedError::add(double got, double plain_got, double expected, double scale) {
  if (!(scale > 0.0)) {
    if (got != 0.0) ours = HUGE_VAL;
    return;
  }
  const double error = std::abs(got - expected) / scale;
  ours = std::max(ours, std::isnan(error) ? HUGE_VAL : error);
  plain = std::max(plain, std::abs(plain_got - expected) / scale);
  const auto near = static_cast<float>(expected / scale);
  const float rounded = (near + 0.3F) - 0.3F;
  rounding = std::max(rounding, 2.0 * std::abs(static_cast<double>(rounded) - expected / scale));
}

std::string CheckedError::note() const {
  return fmt::format("checked: error {:.1e}, plain {:.1e}", ours, plain);
}

}  // namespace sightline::bench
