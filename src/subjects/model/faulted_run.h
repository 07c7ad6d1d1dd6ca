// A model run on one observation's text with faults planted as data, how far it lies from what was observed,
// and how far rounding alone may move it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sightline/faults/fault_table.h"
#include "sightline/subjects/model/model_diagnosis.h"

namespace sightline::subjects {

/// By how much rounding may move the log-probabilities of one text.
struct RoundingBounds {
  std::vector<double> each;  ///< nats, one a log-probability
  double mean = 1;           ///< for the root mean square of all, in bounds
};

struct ModelMisfit {
  double worst = 0;         ///< in bounds, of one log-probability or of the root mean square
  double square = 0;        ///< of all, in squared bounds, each capped at 1e8
  std::int64_t token = -1;  ///< where it is worst: index of the predicted token
  double expected = 0, got = 0;
  std::int64_t first = -1;  ///< the first query whose log-probability is beyond its bound; -1: none
};

class ModelRunner {
 public:
  ModelRunner(Model& model, const Tokenizer& tokenizer, const ModelDiagnosisOptions& options)
      : model_(model), tokenizer_(tokenizer), options_(options) {}

  /// The tolerance for each; with types of the other program ten standard deviations of a log-probability
  /// where those are more, and 1.5 of the root mean square. The deviation is estimated from runs with the
  /// fault whose rows are dithered: a quarter of its square is that of the text's mean, which steadies it.
  /// Nothing: the fault does not apply.
  [[nodiscard]] Result<std::optional<RoundingBounds>> bounds(const ModelObservation& observation,
                                                             const std::optional<Fault>& fault) const;

  /// Nothing: the fault does not apply to this model or text. Errors: those of running it.
  [[nodiscard]] Result<std::optional<ModelMisfit>> misfit(const ModelObservation& observation,
                                                          const std::optional<Fault>& fault,
                                                          const RoundingBounds& bounds) const;

  /// Of each token but the first, after those before it; `rounding` may change rows. Nothing: the fault does
  /// not apply.
  [[nodiscard]] Result<std::optional<std::vector<double>>> logprobs(const ModelObservation& observation,
                                                                    const std::optional<Fault>& fault,
                                                                    const RowChange& rounding = {}) const;

 private:
  Model& model_;
  const Tokenizer& tokenizer_;
  const ModelDiagnosisOptions& options_;
};

}  // namespace sightline::subjects
