// What the tensors of layers say: the first that differ, and the change that explains them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/checker/report.h"
#include "sightline/model/model.h"
#include "sightline/subjects/model/model_observation.h"

namespace sightline::subjects {

struct LayerFindings {
  std::optional<checker::Difference> first;  ///< nothing: every tensor is ours
  /// Of the first layer and step that differ; empty where nothing explains one of them.
  std::vector<checker::NamedFault> faults;
  std::vector<checker::Evidence> evidence;

  /// One line on the faults. Requires some.
  [[nodiscard]] std::string summary() const;
};

/// Requires validated texts. Errors: those of running.
[[nodiscard]] Result<LayerFindings> find_in_layers(Model& model, std::span<const ModelObservation> texts,
                                                   double tolerance);

}  // namespace sightline::subjects
