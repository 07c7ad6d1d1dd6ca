// Picks the next token from a row of logits. The same options, seed and logits give the same token,
// whatever else is in the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/rng.h"
#include "sightline/text/vocabulary.h"

namespace sightline {

/// Names and order of llama.cpp: repetition penalty, top-k, top-p, min-p, temperature.
struct SamplingOptions {
  double temperature = 0.0;  ///< divides logits; 0: greedy (the others but the penalty do nothing)
  int top_k = 0;             ///< keeps the k likeliest; 0: all
  double top_p = 1.0;        ///< keeps the smallest set of the likeliest with probability >= p; 1: all
  double min_p = 0.0;        ///< drops what is less likely than min_p times the likeliest; 0: nothing
  double repetition_penalty =
      1.0;                  ///< logits of tokens seen before: x > 0 ? x / r : x * r (CTRL, arXiv:1909.05858)
  int penalty_last_n = 64;  ///< how many of the last tokens count as seen; -1: all
  std::uint64_t seed = 0;

  bool operator==(const SamplingOptions&) const = default;
};

/// Errors (kInvalidArgument): temperature outside [0, 100], top_k < 0, top_p outside (0, 1], min_p outside
/// [0, 1], a penalty outside (0, 100], any of them NaN; penalty_last_n < -1.
[[nodiscard]] Result<void> validate(const SamplingOptions& options);

/// One sequence's sampler.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), rng_(options.seed) {}

  /// The next token after `history` (prompt included). Ties go to the smaller id.
  /// Errors: kInvalidContent when a logit is NaN or plus infinity, or all are minus infinity: the weights are
  /// broken.
  /// Cost: one pass over the vocabulary when greedy, else one partial sort.
  [[nodiscard]] Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> history);

 private:
  struct Candidate {
    double logit;
    TokenId id;
  };

  SamplingOptions options_;
  Rng rng_;
  std::vector<float> penalised_;
  std::vector<Candidate> candidates_;
};

}  // namespace sightline
