// The error rule of design 5.3 for results of rows: ours may err a few times as much as the plain method in
// f32 does, both against float64, and by the rounding of a number of that size.
#pragma once

#include <string>

namespace sightline::bench {

/// Largest errors of some entries, each over the magnitudes that it is made of.
struct CheckedError {
  double ours = 0.0;
  double plain = 0.0;     ///< the plain method in f32
  double rounding = 0.0;  ///< atol of the rule

  /// One entry; `scale`: the sum of the magnitudes of its terms. 0: nothing reaches it, it must be exactly 0.
  /// A NaN is an infinite error.
  void add(double got, double plain_got, double expected, double scale);
  [[nodiscard]] bool holds(double factor) const { return ours <= factor * plain + rounding; }
  /// What a row that was checked says.
  [[nodiscard]] std::string note() const;
};

}  // namespace sightline::bench
