// Which input would tell apart what an observation could not.
#pragma once

#include <span>
#include <string>

#include "checker/search.h"

namespace sightline::checker {

/// What to ask next, in words, so that every two of `candidates`, which all explain `seen`, answer otherwise
/// by more than kExcluded times the rounding bound: the first of a list of changed inputs for which the
/// simulated answers do. Where none parts all of them, the one that parts most; empty where none parts any.
/// Deterministic. Cost: about a dozen inputs, each simulated once a candidate.
[[nodiscard]] std::string next_probe(const Observation& seen, std::span<const Candidate> candidates);

}  // namespace sightline::checker
