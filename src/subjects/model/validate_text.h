// What every question about texts and a model asks of them first.
#pragma once

#include <span>

#include "sightline/base/error.h"
#include "sightline/model/model.h"
#include "sightline/subjects/model/model_observation.h"

namespace sightline::subjects {

/// Errors (kInvalidArgument): no text, fewer than 2 tokens, ids outside the vocabulary, arrays of other
/// sizes, nothing observed of one, a tolerance that is not above 0.
[[nodiscard]] Result<void> validate_texts(const Model& model, std::span<const ModelObservation> texts,
                                          double tolerance);

}  // namespace sightline::subjects
