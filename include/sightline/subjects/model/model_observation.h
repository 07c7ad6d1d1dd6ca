// One text as another program ran it through a model: token ids, and what came out of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/text/tokenizer.h"

namespace sightline::subjects {

/// One tensor of one layer.
struct LayerTensor {
  std::int64_t layer = 0;
  std::vector<double> rows;  ///< row-major, of `shape`
  /// "q", "k" (before rotation), "v", "attention" (before the output projection) or "output" (the hidden
  /// state after the block).
  std::string tensor = "output";
  /// [tokens, width], [tokens, heads, dim] or [heads, tokens, dim], with keys as dim of scores and weights;
  /// empty: [tokens, width].
  std::vector<std::int64_t> shape{};
};

struct ModelObservation {
  std::vector<TokenId> ids;
  std::int64_t chunk = 0;        ///< tokens of one of its forwards; 0: all at once
  std::vector<double> logprobs;  ///< [num_tokens - 1], natural, of each token given those before it; or empty
  std::vector<LayerTensor> tensors;
  /// Log-probabilities at the start that were not observed: their numbers are not looked at.
  std::int64_t num_unseen = 0;
  /// Each log-probability is what the row after a token gives that token, not the row before: one row late.
  bool is_late = false;
};

}  // namespace sightline::subjects
