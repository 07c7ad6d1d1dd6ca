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

#include "sightline/base/rng.h"

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

/// The error at step h of one derivative, by four points (truncation h^4, so that
/// strongly curved losses reach the floor too). `at(t)` is the loss at parameter t of a line.
inline double slope_error(const std::function<double(double)>& at, double h, double slope) {
  const double difference = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
  const double error = std::abs(difference - slope);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

inline const std::vector<double> kSweepSteps = {1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9};

/// Every entry of x by itself. `loss` reads x where it lies; x is as before afterwards.
inline StepSweep sweep_steps(const std::function<double()>& loss, std::vector<double>& x,
                             const std::vector<double>& gradient) {
  StepSweep sweep{kSweepSteps, {}};
  for (const double h : sweep.steps) {
    double largest = x.size() == gradient.size() ? 0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(x.size(), gradient.size()); ++i) {
      const double kept = x[i];
      const auto at = [&](double t) {
        x[i] = kept + t;
        return loss();
      };
      largest = std::max(largest, slope_error(at, h, gradient[i]));
      x[i] = kept;
    }
    sweep.errors.push_back(largest);
  }
  return sweep;
}

/// All entries at once, along one random direction of length 1: a wrong entry shows in the projection.
inline StepSweep sweep_direction(const std::function<double()>& loss, std::vector<double>& x,
                                 const std::vector<double>& gradient, Rng& rng) {
  StepSweep sweep{kSweepSteps, {}};
  if (x.size() != gradient.size()) {
    sweep.errors.assign(sweep.steps.size(), std::numeric_limits<double>::infinity());
    return sweep;
  }
  const std::vector<double> kept = x;
  std::vector<double> direction(x.size());
  double length = 0, slope = 0;
  for (double& d : direction) d = rng.next_normal();
  for (const double d : direction) length += d * d;
  for (double& d : direction) d /= std::sqrt(length);
  for (std::size_t i = 0; i < x.size(); ++i) slope += direction[i] * gradient[i];
  const auto at = [&](double t) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = kept[i] + t * direction[i];
    return loss();
  };
  for (const double h : sweep.steps) sweep.errors.push_back(slope_error(at, h, slope));
  x = kept;
  return sweep;
}

}  // namespace sightline::reference
