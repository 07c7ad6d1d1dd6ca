// The loss of a text under a model, teacher-forced and step by step: equal to the bit, or the model reads
// what it is asked to predict.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/generate/generate.h"

namespace sightline {

struct EvalOptions {
  std::int64_t context = 0;   ///< tokens of one window; 0: the model's context_length
  std::int64_t chunk = 512;   ///< tokens of one forward when teacher-forced
  bool step_by_step = false;  ///< one token a forward, as in generation
  /// Not null: the same model in another arithmetic, run beside it; the result says how far they are apart.
  Model* reference = nullptr;
};

/// Of the distributions before each target, reference P against model Q.
struct Divergence {
  double reference_loss = 0;
  double mean_kl = 0;  ///< mean over targets of sum P ln(P / Q), in nats
  double max_kl = 0;
  double same_top = 0;  ///< share of targets at which the likeliest token is the same
};

struct EvalResult {
  std::int64_t num_tokens = 0;
  std::int64_t num_targets = 0;          ///< first tokens of windows are no targets
  double loss = 0;                       ///< mean negative natural log-probability of the targets
  double perplexity = 1;                 ///< exp(loss)
  std::vector<double> nll;               ///< of each target, in order of the text
  std::optional<Divergence> divergence;  ///< with a reference
};

/// Cuts `ids` into windows of `context` tokens that see nothing of each other and sums in order of the text.
/// Errors: kInvalidArgument (fewer than 2 tokens, ids outside the vocabulary, a reference of another one),
/// kInvalidContent (logits that are not finite). `on_progress(done, all)` after each forward; returning false
/// ends with kTryLater ("cancelled").
[[nodiscard]] Result<EvalResult> evaluate_loss(
    Model& model, std::span<const TokenId> ids, const EvalOptions& options,
    const std::function<bool(std::int64_t, std::int64_t)>& on_progress = {});

}  // namespace sightline
