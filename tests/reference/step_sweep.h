// Central differences over a sweep of steps. A right gradient shows a V: truncation error on the left,
// rounding on the right, a deep minimum between. A wrong one shows a flat line.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace sightline::reference {

struct StepSweep {
  std::vector<double> steps;
  std::vector<double> errors;  ///< largest |central difference - gradient| over all entries, for each step

  double best() const { return *std::ranges::min_element(errors); }
  /// The minimum lies inside the sweep, is below `depth`, and both ends are at least 30 times as high.
  bool is_v(double depth) const {
    return best() < depth && errors.front() > 30 * best() && errors.back() > 30 * best();
  }
  /// No step brings the error below `floor`, and all but the roughest agree within a few percent.
  bool is_flat(double floor) const {
    const auto [low, high] = std::minmax_element(errors.begin() + 2, errors.end() - 2);
    return *low > floor && *high < 1.05 * *low;
  }
  std::string text() const {
    std::string lines;
    for (std::size_t i = 0; i < steps.size(); ++i)
      lines += fmt::format("h {:.0e}: {:.2e}\n", steps[i], errors[i]);
    return lines;
  }
};

/// Sweeps h from 1e-1 to 1e-9 with four-point central differences. `loss` reads x where it lies; x is as
/// before afterwards.
inline StepSweep sweep_steps(const std::function<double()>& loss, std::vector<double>& x,
                             const std::vector<double>& gradient) {
  StepSweep sweep;
  for (int exponent = 1; exponent <= 9; ++exponent) {
    const double h = std::pow(10.0, -exponent);
    double largest = x.size() == gradient.size() ? 0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(x.size(), gradient.size()); ++i) {
      const double kept = x[i];
      const auto moved = [&](double step) {
        x[i] = kept + step;
        return loss();
      };
      // Four points: truncation h^4, so that strongly curved losses reach the floor too.
      const double slope = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
      x[i] = kept;
      const double error = std::abs(slope - gradient[i]);
      if (!(error <= largest)) largest = error;  // keeps NaN
    }
    sweep.steps.push_back(h);
    sweep.errors.push_back(largest);
  }
  return sweep;
}

}  // namespace sightline::reference
