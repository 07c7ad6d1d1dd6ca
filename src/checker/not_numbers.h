// Arrays that hold NaN or infinity where numbers belong: what is said of them when no fault explains them.
#pragma once

#include <span>
#include <string>

#include "sightline/checker/observation.h"

namespace sightline::checker {

/// The first input that holds no number at all ("q is NaN in all 768 numbers, from q[0, 0, 0] on"); "" where
/// each holds some.
[[nodiscard]] std::string input_without_numbers(std::span<const Observation> observations);

struct NotNumbers {
  std::string what;     ///< in the same words; empty: all are numbers
  bool is_all = false;  ///< no number is left in that array
};
/// The first output with NaN, or infinity elsewhere than in lse.
[[nodiscard]] NotNumbers output_not_a_number(std::span<const Observation> observations);

}  // namespace sightline::checker
