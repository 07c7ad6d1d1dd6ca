// Tensors of layers as another program saved them, held against our own run of the same model file: the first
// that differs, and how.
#pragma once

#include <span>

#include "sightline/base/error.h"
#include "sightline/checker/report.h"
#include "sightline/model/model.h"
#include "sightline/subjects/model/model_observation.h"

namespace sightline::subjects {

/// Runs each text once and goes through its tensors in the order in which they are computed. Of the first
/// layer and step that differs the change is named: `tensor.scaled`, `tensor.offset`, `tensor.shifted`
/// (rows), `tensor.permuted` (heads, tokens or components) or `head.merge_transpose`, with layer, tensor and
/// parameter; or, where q, k and v are ours and `attention` is not, a fault of attention by the oracle's
/// simulation. `unknown` with the layer and tensor where neither does. Certain: two texts exclude every other
/// kind. Numbers may differ by `tolerance` times the root mean square of their tensor.
///
/// Errors (kInvalidArgument): no text, ids outside the vocabulary, a layer or tensor that the model lacks,
/// other sizes, no tensor; those of running the model. Cost: one forward a text, and the oracle on one layer.
[[nodiscard]] Result<checker::Report> diagnose_layers(Model& model, std::span<const ModelObservation> texts,
                                                      double tolerance);

}  // namespace sightline::subjects
