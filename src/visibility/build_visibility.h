// build_visibility with the choice of path open, for tests that hold the two against each other.
#pragma once

#include "sightline/visibility/visibility_map.h"
#include "visibility/mask_program.h"

namespace sightline {

enum class VisibilityPath : std::uint8_t {
  kAuto,  // ranges where the rules allow it and they stay few
  kBits,
};

[[nodiscard]] Result<VisibilityMap> build_visibility_by(const VisibilityInput& input, VisibilityPath path);

}  // namespace sightline
