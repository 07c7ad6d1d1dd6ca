// What is declared f32 and is right to the rounding of a half type, without outputs of that type: scores or
// weights were rounded on the way. No prediction meets such numbers exactly, since each program rounds at
// other steps, so this is never certain.
#pragma once

#include <span>
#include <vector>

#include "checker/search.h"

namespace sightline::checker {

/// One candidate of score.softmax_precision, or none. `declared`: what the declared meaning misses of each;
/// where most of their rows are within its bounds, nothing was rounded inside.
[[nodiscard]] std::vector<Candidate> rounded_inside(std::span<const Observation> observations,
                                                    const std::vector<Misfit>& declared);

}  // namespace sightline::checker
