// A model run on one observation's text with faults planted as data, and how far it lies from what was
// observed.
#pragma once

#include <optional>
#include <span>

#include "sightline/faults/fault_table.h"
#include "sightline/subjects/model/model_diagnosis.h"

namespace sightline::subjects {

struct ModelMisfit {
  double worst = 0;         ///< in tolerances
  double mean_square = 0;   ///< of the same, each capped at 1e4
  std::int64_t token = -1;  ///< where it is worst: index of the predicted token
  double expected = 0, got = 0;
};

class ModelRunner {
 public:
  ModelRunner(Model& model, const Tokenizer& tokenizer, double tolerance)
      : model_(model), tokenizer_(tokenizer), tolerance_(tolerance) {}

  /// Nothing: the fault does not apply to this model or text. Errors: those of running it.
  [[nodiscard]] Result<std::optional<ModelMisfit>> misfit(const ModelObservation& observation,
                                                          std::optional<Fault> fault) const;

 private:
  Model& model_;
  const Tokenizer& tokenizer_;
  double tolerance_;
};

}  // namespace sightline::subjects
