// The error rule of the project: a float result may err at most twice as much as the plain method in the
// same type does, both against float64. No bare tolerance.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

namespace sightline::test {

/// max|out - ref| <= 2 max|plain - ref| + atol, atol = 2 max|(ref + 0.3 - 0.3) - ref| in f32, over one row.
/// A NaN where ref has none fails, and so does a number where ref is NaN.
inline ::testing::AssertionResult within_error_rule(std::span<const float> out, std::span<const float> plain,
                                                    std::span<const double> ref) {
  if (out.size() != ref.size() || plain.size() != ref.size()) {
    return ::testing::AssertionFailure() << "sizes differ";
  }
  double error = 0.0;
  double plain_error = 0.0;
  double atol = 0.0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    if (std::isnan(ref[i]) != std::isnan(out[i])) {
      return ::testing::AssertionFailure() << "at " << i << ": " << out[i] << " for " << ref[i];
    }
    if (std::isnan(ref[i])) continue;
    const volatile float moved = static_cast<float>(ref[i]) + 0.3F;
    const float back = moved - 0.3F;
    atol = std::max(atol, 2.0 * std::abs(static_cast<double>(back) - ref[i]));
    plain_error = std::max(plain_error, std::abs(static_cast<double>(plain[i]) - ref[i]));
    error = std::max(error, std::abs(static_cast<double>(out[i]) - ref[i]));
  }
  if (error <= 2.0 * plain_error + atol) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "error " << error << ", plain " << plain_error << ", atol " << atol;
}

}  // namespace sightline::test
