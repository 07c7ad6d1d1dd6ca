// Narrows an interval around the least of a function that falls and then rises, one evaluation a step.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "sightline/base/error.h"

namespace sightline {

/// An interval with two points inside, at the golden section from either end.
struct GoldenSection {
  double low = 0, high = 0;

  [[nodiscard]] double left() const { return high - kShare * (high - low); }
  [[nodiscard]] double right() const { return low + kShare * (high - low); }

 private:
  static constexpr double kShare = 0.6180339887498949;  // (sqrt(5) - 1) / 2
};

struct GoldenLimits {
  int max_steps = 60;
  double tolerance = 0;  ///< ends once the interval is as short as this, relative to its ends
};

/// What was found at the two inner points, after the last step.
template <typename T>
using GoldenPair = std::pair<T, T>;

/// Narrows `section` from what `found` holds of its inner points. `evaluate(x)` gives a Result<T>; `less(a,
/// b)` says that `a` is the lower. Errors: those of evaluate. Cost: one evaluation a step. Source: Kiefer,
/// Sequential minimax search for a maximum, 1953.
template <typename T, typename Evaluate, typename Less>
[[nodiscard]] Result<GoldenPair<T>> narrow(GoldenSection section, GoldenPair<T> found,
                                           const GoldenLimits& limits, Evaluate evaluate, Less less) {
  for (int i = 0; i < limits.max_steps; ++i) {
    const double size = std::max(std::abs(section.low), std::abs(section.high));
    if (std::abs(section.high - section.low) <= limits.tolerance * size) break;
    // The point that is kept becomes the other inner point of what is left.
    if (less(found.first, found.second)) {
      section.high = section.right();
      found.second = std::move(found.first);
      SIGHTLINE_TRY(found.first, evaluate(section.left()));
    } else {
      section.low = section.left();
      found.first = std::move(found.second);
      SIGHTLINE_TRY(found.second, evaluate(section.right()));
    }
  }
  return found;
}

}  // namespace sightline
