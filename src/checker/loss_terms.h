// The loss of a training step and its gradient as an implementation with given ways of counting would have
// them. Plain loops in float64.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sightline/checker/loss.h"

namespace sightline::checker {

/// What the sum over targets is divided by.
enum class LossMean : std::uint8_t {
  kAllTargets,    ///< the number of all targets of the step: right
  kMicroMeans,    ///< the mean of the means of micro-batches
  kRowMeans,      ///< the mean of the means of rows
  kMicroSum,      ///< the means of micro-batches are added
  kDividedTwice,  ///< right, and by the number of micro-batches again
  kPositions,     ///< the number of positions that could be targets, ignored ones among them
  kSum,           ///< 1
};

/// One defaulted field for each way of being wrong.
struct LossDeviation {
  std::int64_t shift = 1;  ///< positions between an output and its target
  LossMean mean = LossMean::kAllTargets;
  std::optional<std::int64_t> ignored_value = std::nullopt;  ///< labels of this value carry no loss
  bool counts_ignored = false;                               ///< ignored labels count as their input ids
  double factor = 1;                                         ///< of everything

  [[nodiscard]] int count() const {
    return (shift != 1 ? 1 : 0) + (mean != LossMean::kAllTargets ? 1 : 0) + (ignored_value ? 1 : 0) +
           (counts_ignored ? 1 : 0) + (factor != 1 ? 1 : 0);
  }
};

struct LossPrediction {
  double loss = 0, loss_bound = 0;
  std::vector<double> d_head;  ///< empty where none was observed
  double d_head_bound = 0;     ///< of every number
  std::int64_t num_targets = 0;
};

/// What was observed of `o` under a deviation. Requires a valid observation.
[[nodiscard]] LossPrediction predict_loss(const LossObservation& o, const LossDeviation& deviation);

}  // namespace sightline::checker
