// Where a token stands, as the rules see it. Storage (rows, slots, pages) never appears here.
#pragma once

#include <cstdint>

namespace sightline {

/// The largest magnitude of a position, segment start or rotary position that caches, attention and the
/// oracle take: doubles hold it exactly, and no difference of two overflows.
inline constexpr std::int64_t kMaxCoordinate = std::int64_t{1} << 53;
[[nodiscard]] constexpr bool is_coordinate(std::int64_t x) {
  return -kMaxCoordinate <= x && x <= kMaxCoordinate;
}

/// The coordinates of one token. `pos` rises along its sequence and alone decides causal, windows and
/// ALiBi; what rotates q and k is `rope_pos`, an array beside the coordinates.
struct TokenCoord {
  std::int64_t pos = 0;            ///< 0-based position in its own sequence; ignored when not valid
  std::int64_t segment_start = 0;  ///< `pos` of the first valid token of its segment
  std::int32_t segment = 0;        ///< packed document
  std::int32_t span = 0;           ///< bidirectional group within its segment; 0: none
  std::uint32_t flags = 0;         ///< free bits for `query_is(b)` and `key_is(b)`
  bool valid = true;               ///< false: padding; visible to nobody, sees nothing

  bool operator==(const TokenCoord&) const = default;
};

/// A token of a call: its coordinates and its row in the caller's array, which only `dense` and
/// `tree` look up in the mask's tables.
struct TokenRef {
  TokenCoord coord;
  std::int64_t row_idx = 0;
};

}  // namespace sightline
