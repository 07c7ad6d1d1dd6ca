// What the declaration and the best explanation say inside of one head: pictures beside a verdict, compared
// with nothing.
#pragma once

#include <span>

#include "checker/search.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

/// Of `o`, around its query `row` and in query head `head`. `explanation`: null where nothing was named.
/// Cost: two forwards of one head over at most kMaxInside queries.
[[nodiscard]] InsideView inside_view(const Observation& o, std::int64_t row, int head,
                                     const Candidate* explanation);

}  // namespace sightline::checker
