// What any right implementation keeps, whatever it means: held against the subject itself, not the oracle.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sightline/checker/subject.h"

namespace sightline::checker {

struct RelationResult {
  std::string name;  ///< "whole = chunks"
  /// Largest change of an output, in rounding bounds of the declared meaning.
  double worst = 0;
  [[nodiscard]] bool holds() const { return worst <= kLargest; }
  /// Both sides round, and the bounds are those of the declared meaning, not of what the subject does.
  static constexpr double kLargest = 4.0;
};

/// Answers of one subject whose relations are to be held: inputs and outputs of the probes `whole` and, where
/// asked, `chunks`.
struct RelationInputs {
  const Observation* whole = nullptr;
  std::span<const double> bounds;       ///< out_bounds of `whole`
  const Observation* chunks = nullptr;  ///< null: not asked
};

/// The same question again, which may change its outputs by rounding (sums of threads in another order) and
/// by nothing else. `in.chunks` is not looked at. Errors: those of asking.
[[nodiscard]] Result<RelationResult> hold_repeat(Subject& subject, const RelationInputs& in);

/// The same gradients again; as hold_repeat, and `answered` holds gradients. Errors: those of asking.
[[nodiscard]] Result<RelationResult> hold_gradient_repeat(Subject& subject, const Observation& answered);

/// whole = chunks; a blind edit (another value and key of a token changes no row that must not see it); all
/// rotary positions + a constant. Those that the subject's traits or the spec leave no room for are left out.
/// Errors: those of asking.
[[nodiscard]] Result<std::vector<RelationResult>> hold_relations(Subject& subject, const RelationInputs& in);

}  // namespace sightline::checker
