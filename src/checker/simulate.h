// What an implementation with given faults would have answered, by the oracle, and how far rounding of the
// observed type may move each number of it.
#pragma once

#include <span>
#include <vector>

#include "checker/rounding.h"
#include "sightline/checker/observation.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {

/// One array of a prediction with the rounding bound of each number.
struct PredictedArray {
  std::vector<double> values;
  std::vector<double> bounds;  ///< > 0; infinite where anything may stand
};

/// Arrays of the selected query rows, in the order of an observation's; empty where nothing was observed.
struct Prediction {
  PredictedArray out, lse, weights;
  PredictedArray d_q, d_k, d_v;  ///< of all rows
};

/// Predicts for one observation. The observation must outlive it.
class Simulator {
 public:
  /// `rows`: query rows to predict, ascending. Gradients, where wanted, are always those of all rows.
  Simulator(const Observation& observation, std::vector<std::int64_t> rows, bool with_gradients = true);
  /// One that predicts these heads alone, ascending, and no gradients; of the others anything may be.
  Simulator(const Observation& observation, std::vector<std::int64_t> rows, std::vector<int> heads);

  /// The prediction under all of `faults` together.
  /// Errors (kInvalidArgument): a fault that cannot show in this observation: it changes a trace or a loss
  /// alone, or nothing here.
  [[nodiscard]] Result<Prediction> predict(std::span<const Fault> faults) const;

  [[nodiscard]] const std::vector<std::int64_t>& rows() const { return rows_; }
  [[nodiscard]] const Observation& observation() const { return *observation_; }

 private:
  const Observation* observation_;
  std::vector<std::int64_t> rows_;
  bool with_gradients_;
  std::vector<int> heads_;  ///< empty: all
  RoundingBounds bounds_;   ///< of arrays read as they are meant
};

}  // namespace sightline::checker
