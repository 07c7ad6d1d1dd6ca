// What one call of one sequence tells an engine about its tokens. Faults of position and alignment are
// other values of these arrays; an engine that takes them needs nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/spec/coords.h"

namespace sightline {

/// The queries of a call, and the keys that it appends.
struct CallCoords {
  std::int64_t num_cached = 0;            ///< ordinals the sequence held before this call
  std::vector<TokenCoord> q_coords;       ///< [num_tokens]
  std::vector<std::int64_t> q_rope_pos;   ///< [num_tokens], filled
  std::vector<TokenCoord> kv_coords;      ///< [num_tokens], under which the new keys are appended
  std::vector<std::int64_t> kv_rope_pos;  ///< [num_tokens], filled
  std::int64_t num_drafts = 0;            ///< newest tokens that are nodes of a draft tree

  bool operator==(const CallCoords&) const = default;
};

/// The right coordinates of a call. `rope_pos` empty: equal to pos.
[[nodiscard]] CallCoords call_coords(std::int64_t num_cached, std::span<const TokenCoord> coords,
                                     std::span<const std::int64_t> rope_pos = {});

}  // namespace sightline
