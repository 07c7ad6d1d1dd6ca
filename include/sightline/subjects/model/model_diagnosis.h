// What another program does with the same model file: its log-probabilities or hidden states are held against
// our own run, and against runs with each fault planted.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "sightline/base/error.h"
#include "sightline/checker/report.h"
#include "sightline/model/model.h"
#include "sightline/subjects/model/foreign_types.h"
#include "sightline/subjects/model/model_observation.h"
#include "sightline/text/tokenizer.h"

namespace sightline::subjects {

struct ModelDiagnosisOptions {
  /// Nats by which rounding may move a log-probability: 2e-3 for float32. Tensors of layers may differ by
  /// this share of their root mean square.
  double tolerance = 2e-3;
  /// What the other program rounds, where it computes in less than float32. How far that moves each
  /// log-probability is then measured, by runs whose rows are rounded so at random offsets.
  std::optional<ForeignTypes> types{};
  std::function<void(int done, int total, std::string_view step)> progress{};
  /// Asked before each run of the model; true ends the diagnosis with kTryLater.
  std::function<bool()> stop{};
};

/// Explains the observations: `agrees` or `rounding` when every number lies within the tolerance, a fault by
/// name when the model with it planted in every layer does (rows of the fault table that the engine can run,
/// with their parameters measured), `unknown` otherwise. Tensors of layers are looked at first: where the
/// first that differs is explained by itself, that is the answer (see diagnose_layers). Certain: two
/// observations exclude every other fault by ten times the bound. With `types` the bound is what rounding to
/// them does, and a fault that lies ten standard deviations further off than another does not fit.
///
/// Errors (kInvalidArgument): no observation, fewer than 2 tokens, ids outside the vocabulary, arrays of
/// other sizes, nothing observed; kTryLater: `stop` said so; those of running the model. Cost: about a
/// hundred forwards of the shortest text, some twenty of the others; where several faults fit, up to five
/// longer ones of each, which look for a text that tells them apart.
[[nodiscard]] Result<checker::Report> diagnose_model(Model& model, const Tokenizer& tokenizer,
                                                     std::span<const ModelObservation> observations,
                                                     const ModelDiagnosisOptions& options = {});

}  // namespace sightline::subjects
