// Our own tensors beside the observed ones, in the order in which a model computes them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/model/model.h"
#include "sightline/subjects/model/model_observation.h"
#include "subjects/model/tensor_change.h"

namespace sightline::subjects {

/// One tensor of one layer in every text that has it, as rows [num_tokens, num_heads * dim].
struct ComparedTensor {
  std::int64_t layer = 0;
  int step = 0;  ///< 0: q, k and v; then scores, weights, attention, output
  std::string tensor;
  std::vector<std::size_t> texts;  ///< indices of those that have it
  std::vector<std::vector<double>> ours, theirs;
  std::vector<TensorPair> pairs;  ///< views into the two

  [[nodiscard]] std::string name() const;  ///< "layer.1.v"
};

/// Errors (kInvalidArgument): an unknown layer or tensor, other sizes.
[[nodiscard]] Result<void> validate_tensors(const Model& model, const ModelObservation& text);

/// Runs each text whole, once. Requires valid texts. Where sizes leave open whether tokens or heads come
/// first, the order nearer to ours is taken. Errors: those of running.
[[nodiscard]] Result<std::vector<ComparedTensor>> compare_tensors(Model& model,
                                                                  std::span<const ModelObservation> texts,
                                                                  double tolerance);

/// Our own rows of one text by name ("layer.0.q"), [num_tokens, width]. Errors: those of running.
[[nodiscard]] Result<std::vector<std::pair<std::string, std::vector<double>>>> run_and_keep(
    Model& model, std::span<const TokenId> ids, std::span<const std::string> names);

}  // namespace sightline::subjects
