#include "sightline/spec/call.h"

namespace sightline {

CallCoords call_coords(std::int64_t num_cached, std::span<const TokenCoord> coords,
                       std::span<const std::int64_t> rope_pos) {
  CallCoords call;
  call.num_cached = num_cached;
  call.q_coords.assign(coords.begin(), coords.end());
  call.q_rope_pos.assign(rope_pos.begin(), rope_pos.end());
  if (rope_pos.empty()) {
    for (const TokenCoord& coord : coords) call.q_rope_pos.push_back(coord.pos);
  }
  call.kv_coords = call.q_coords;
  call.kv_rope_pos = call.q_rope_pos;
  return call;
}

}  // namespace sightline
