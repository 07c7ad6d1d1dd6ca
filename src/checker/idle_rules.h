// Rules of a declared mask that no observation puts to the test.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "sightline/checker/observation.h"

namespace sightline::checker {

/// One line for each rule that hides nothing in any observation, or lets nothing be seen: with it left out
/// who sees whom would be the same, so an agreement says nothing of it. Cost: every pair once for each rule;
/// nothing is said of observations of more than 2^24 pairs.
[[nodiscard]] std::vector<std::string> idle_rules(std::span<const Observation> observations);

}  // namespace sightline::checker
