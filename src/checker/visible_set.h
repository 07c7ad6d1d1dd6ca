// Measures who sees whom from outputs alone: queries of zeros give every visible key the same logit, and
// values that are one-hot say which keys those are.
#pragma once

#include "sightline/checker/report.h"
#include "sightline/checker/subject.h"

namespace sightline::checker {

/// The visible set of `probe`'s tokens and calls, declared and observed (by any head).
/// Errors: those of asking. Cost: kv_len / v_head_dim questions, rounded up.
[[nodiscard]] Result<VisibleSet> measure_visible_set(Subject& subject, const Observation& probe);

/// "row 12 sees keys 0..3, declared 0..12", for the first row that differs; empty: none does.
[[nodiscard]] std::string first_difference(const VisibleSet& set);

}  // namespace sightline::checker
