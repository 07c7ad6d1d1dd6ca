// Which keys each query sees, as key ranges and as a map of tiles: what attention plans from. Derived
// from spec/mask.h and tested against is_visible pair by pair; it adds no meaning of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/spec/coords.h"
#include "sightline/spec/mask.h"

namespace sightline {

/// Keys begin..end-1, as indices into the `kv` coordinates given to build_visibility.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
  bool operator==(const KeyRange&) const = default;
};

/// Queries and keys in one tile. 1 <= q <= 1024; kv is 128 (two words of a BitRow).
struct TileShape {
  int q = 32;
  int kv = 128;
  bool operator==(const TileShape&) const = default;
};

enum class TileKind : std::uint8_t {
  kFull,           ///< every pair that exists (row < num_q, key < num_kv) is visible: no test needed
  kPartialRanges,  ///< some pairs: the queries' ranges() say which
  kPartialBits,    ///< some pairs: bits(bits_idx) says which
};

/// A run of key tiles of one kind for one query tile. kPartialBits runs are one tile long.
struct TileRun {
  std::int32_t kv_tile_begin = 0, kv_tile_end = 0;
  TileKind kind = TileKind::kFull;
  std::int32_t bits_idx = -1;  ///< kPartialBits only
  bool operator==(const TileRun&) const = default;
};

/// The keys of one tile that one query sees: bit c % 64 of words[c / 64] is key kv_tile * 128 + c.
/// Bits of keys and rows that do not exist are 0.
struct BitRow {
  std::uint64_t words[2] = {0, 0};
  bool operator==(const BitRow&) const = default;
};

/// The visible pairs of one call. Immutable; safe to read from several threads.
///
/// A query tile is wholly on the range path or wholly on the bit path. On the range path memory is
/// O(ranges), which for masks of range rules over few stretches of positions is O(tokens); on the bit
/// path equal partial tiles are stored once.
class VisibilityMap {
 public:
  [[nodiscard]] std::int64_t num_q() const { return num_q_; }
  [[nodiscard]] std::int64_t num_kv() const { return num_kv_; }
  [[nodiscard]] TileShape tile() const { return tile_; }
  [[nodiscard]] std::int64_t num_q_tiles() const {
    return static_cast<std::int64_t>(run_offsets_.size()) - 1;
  }
  /// Key tiles of one query tile that hold a visible pair: ascending and disjoint; empty tiles are absent.
  [[nodiscard]] std::span<const TileRun> runs(std::int64_t q_tile) const {
    return slice(runs_, run_offsets_, q_tile);
  }
  /// What query `q` sees: ascending, disjoint, non-adjacent, not empty. Empty for queries on the bit path.
  [[nodiscard]] std::span<const KeyRange> ranges(std::int64_t q) const {
    return slice(ranges_, range_offsets_, q);
  }
  /// tile().q rows of one partial tile; equal tiles share one index.
  [[nodiscard]] std::span<const BitRow> bits(std::int32_t bits_idx) const {
    const auto rows = static_cast<std::size_t>(tile_.q);
    return std::span(bits_).subspan(static_cast<std::size_t>(bits_idx) * rows, rows);
  }
  [[nodiscard]] std::int64_t num_visible_pairs() const { return num_visible_pairs_; }
  /// Distinct partial tiles stored as bits.
  [[nodiscard]] std::int64_t num_bit_tiles() const {
    return static_cast<std::int64_t>(bits_.size()) / tile_.q;
  }
  /// Bytes held by this map, itself included.
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class VisibilityMapBuilder;

  template <typename T>
  [[nodiscard]] static std::span<const T> slice(const std::vector<T>& items,
                                                const std::vector<std::int64_t>& offsets, std::int64_t i) {
    const auto begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(i)]);
    const auto end = static_cast<std::size_t>(offsets[static_cast<std::size_t>(i) + 1]);
    return std::span(items).subspan(begin, end - begin);
  }

  std::int64_t num_q_ = 0, num_kv_ = 0, num_visible_pairs_ = 0;
  TileShape tile_;
  std::vector<TileRun> runs_;
  std::vector<std::int64_t> run_offsets_{0};  // [num_q_tiles + 1]
  std::vector<KeyRange> ranges_;
  std::vector<std::int64_t> range_offsets_{0};  // [num_q + 1]
  std::vector<BitRow> bits_;                    // [num_bit_tiles, tile.q]
};

/// The visible pairs of `q` and `kv` under `mask`, exactly: is_visible(mask, tables, q[i], kv[j]) for every
/// pair.
///
/// Keys may come in any order; ascending positions are what is fast. `q_row_idx` and `kv_row_idx` give the
/// rows that `dense` and `tree` look up; empty means row i is i.
/// Errors (kInvalidArgument): an invalid mask or tables, row arrays of the wrong length or with negative
/// entries, a tile shape out of range, 2^31 or more key tiles.
/// Cost: one pass over the keys, then per query one step for each stretch of keys with rising positions
/// (for masks that imply `segment`: stretches of its own segment); `dense`, `tree` and `dilated` cost one
/// step a pair. Deterministic.
[[nodiscard]] Result<VisibilityMap> build_visibility(const MaskSpec& mask, const MaskTables& tables,
                                                     std::span<const TokenCoord> q,
                                                     std::span<const TokenCoord> kv,
                                                     std::span<const std::int64_t> q_row_idx,
                                                     std::span<const std::int64_t> kv_row_idx,
                                                     TileShape tile);

}  // namespace sightline
