// How far an observation lies from a prediction, in units of the rounding bound.
#pragma once

#include <optional>
#include <vector>

#include "checker/simulate.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

/// Within the bound everywhere: the prediction explains the observation.
inline constexpr double kFits = 1.0;
/// Beyond this the prediction is excluded.
inline constexpr double kExcluded = 10.0;

struct Misfit {
  double worst = 0;  ///< largest |observed - predicted| / bound; infinite where only one of them is a number
  double mean_square = 0;            ///< of the same ratios, each capped at 1e6; ranks what does not fit
  std::optional<Difference> first;   ///< first number beyond its bound
  std::vector<double> worst_of_row;  ///< `worst` of out, lse and weights for each predicted query row
};

/// Compares the predicted rows with the observed ones. NaN agrees with NaN alone, infinity with itself.
[[nodiscard]] Misfit compare(const Simulator& simulator, const Prediction& prediction);

}  // namespace sightline::checker
