// The coordinates by which a deviating implementation decides who sees whom, where they are not the given
// ones.
#pragma once

#include <vector>

#include "sightline/reference/attention.h"

namespace sightline::reference {

/// Each empty where nothing deviates.
struct DeviantCoords {
  std::vector<TokenCoord> q, kv;
};

DeviantCoords deviant_coords(const AttentionSpec& spec, const AttentionInputs& inputs,
                             const Deviation& deviation);

}  // namespace sightline::reference
