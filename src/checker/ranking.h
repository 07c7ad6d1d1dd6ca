// What a report shows beside the names: how far every row lies from the declared meaning, and how near every
// hypothesis comes.
#pragma once

#include <span>
#include <vector>

#include "checker/search.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

/// The misfit of each query row, all rows of the observation.
[[nodiscard]] std::vector<double> row_errors(const Observation& observation);

/// The nearest of `tried`, best first, each set of slugs once, and the declared meaning among them.
[[nodiscard]] std::vector<RankedHypothesis> ranked(std::span<const Candidate> tried, double declared_misfit);

/// "mask.top_left_alignment and head.gqa_mapping".
[[nodiscard]] std::string text_of(std::span<const Fault> faults);

}  // namespace sightline::checker
