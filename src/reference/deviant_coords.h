// The coordinates by which a deviating implementation decides who sees whom, where they are not the given
// ones.
#pragma once

#include <vector>

#include "sightline/reference/attention.h"

namespace sightline::reference {

/// Each empty where nothing deviates.
struct DeviantCoords {
  std::vector<TokenCoord> q, kv;
  std::int64_t num_zero_keys = 0;  ///< keys and values of 0 that every query of the call reads besides
};

DeviantCoords deviant_coords(const AttentionSpec& spec, const AttentionInputs& inputs,
                             const Deviation& deviation);

}  // namespace sightline::reference
