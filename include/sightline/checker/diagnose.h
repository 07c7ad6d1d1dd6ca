// From arrays that exist to the name of the fault: every fault of the table is simulated by the oracle on the
// declared meaning, and the one whose prediction matches to rounding is named with its parameters.
#pragma once

#include <functional>
#include <span>

#include "sightline/base/error.h"
#include "sightline/checker/observation.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

struct DiagnoseOptions {
  /// Asked before each simulated hypothesis; true ends the search with kTryLater.
  std::function<bool()> stop{};
  /// Whoever observed may not have said in which calls the queries came. Where nothing explains what was seen
  /// as one call, and its first rows agree, calls that begin at the first row that differs are tried, and
  /// what they explain is told as `next_probe`: the verdict stays `unknown`.
  bool guesses_calls = false;
};

/// Explains observations of one implementation under one declaration. Several observations (probes) narrow
/// the answer: a fault must explain all of them, and only two or more can make it certain.
///
/// Single faults first, then pairs of two kinds. Parameters are measured: integers by trying them, others by
/// a search on the misfit.
/// `broken`: an input without any number, or outputs that are NaN or infinite and no fault explains them.
/// Errors (kInvalidArgument): no observation, one that does not validate, observations of different specs;
/// kTryLater: `stop` said so.
/// Cost: a few hundred oracle runs on at most 24 rows of each observation. Deterministic.
[[nodiscard]] Result<Report> diagnose(std::span<const Observation> observations,
                                      const DiagnoseOptions& options = {});
[[nodiscard]] inline Result<Report> diagnose(const Observation& observation,
                                             const DiagnoseOptions& options = {}) {
  return diagnose(std::span(&observation, 1), options);
}

}  // namespace sightline::checker
