// Relations that a right decoder keeps and a faulty one breaks, measured on a model through generate():
// no oracle is needed. Figures are differences of log-probabilities in nats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/generate/generate.h"

namespace sightline::apps {

/// One relation on one prompt.
struct RelationReport {
  std::string name;  ///< "whole = chunks of 4"
  bool holds = false;
  bool exact = false;       ///< held to the last bit
  double difference = 0;    ///< largest |difference| of a log-probability, nats
  std::int64_t token = -1;  ///< where it is largest: row in the prompt
};

/// Runs on one prompt of at least 2 tokens.
struct RelationInput {
  Model& model;
  const Tokenizer& tokenizer;
  const std::vector<TokenId>& prompt;
  const GenerateHooks& hooks;  ///< a planted fault, or nothing
  std::int64_t chunk = 4;
};

/// The prompt in one call and in chunks give equal bits.
[[nodiscard]] Result<RelationReport> whole_equals_chunks(const RelationInput& in);
/// An edit of the last token leaves every earlier position to the bit.
[[nodiscard]] Result<RelationReport> future_leaves_past_alone(const RelationInput& in);
/// Adding a constant to every rotary position changes nothing but rounding: only distances enter. Claimed for
/// pure rope only. Rounding: below `kRoundingNats`.
[[nodiscard]] Result<RelationReport> shift_changes_nothing(const RelationInput& in);

/// f32 over 30 layers moves a log-probability by less than this (the tolerance of the golden values).
inline constexpr double kRoundingNats = 2e-3;

/// Natural log-probability of every prompt token but the first, computed with `chunk` tokens a forward.
[[nodiscard]] Result<std::vector<double>> score_prompt(const RelationInput& in, std::int64_t chunk,
                                                       const std::vector<TokenId>& prompt,
                                                       const GenerateHooks& hooks);

}  // namespace sightline::apps
