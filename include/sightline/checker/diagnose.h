// From arrays that exist to the name of the fault: every fault of the table is simulated by the oracle on the
// declared meaning, and the one whose prediction matches to rounding is named with its parameters.
#pragma once

#include <span>

#include "sightline/base/error.h"
#include "sightline/checker/observation.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

/// Explains observations of one implementation under one declaration. Several observations (probes) narrow
/// the answer: a fault must explain all of them, and only two or more can make it certain.
///
/// Single faults first, then pairs of two kinds. Parameters are measured: integers by trying them, others by
/// a search on the misfit.
/// Errors (kInvalidArgument): no observation, one that does not validate, observations of different specs.
/// Cost: a few hundred oracle runs on at most 24 rows of each observation. Deterministic.
[[nodiscard]] Result<Report> diagnose(std::span<const Observation> observations);
[[nodiscard]] inline Result<Report> diagnose(const Observation& observation) {
  return diagnose(std::span(&observation, 1));
}

}  // namespace sightline::checker
