// The tiles that one work item meets, in order, with the visible keys of each of its queries.
#pragma once

#include <cstdint>

#include "attention/plan.h"

namespace sightline {

/// All 128 keys of the tile, which lies in `run`, exist and every query sees them all.
[[nodiscard]] bool is_whole(const VisibilityMap& map, const TileRun& run, std::int64_t tile);
/// The keys of one tile that query `q` sees, by bit. `cursor`: into the query's ranges, not beyond the first
/// that ends in or after the tile; it is moved there.
void visible_keys(const VisibilityMap& map, const TileRun& run, std::int64_t tile, std::int64_t q,
                  std::int32_t& cursor, std::uint64_t* words);
/// The words of each query [queries][2] to the rows of its heads, [num_rows][2].
void spread_words(const WorkItem& item, const std::uint64_t* query_words, std::uint64_t* words);

/// Walks the runs of one query tile from tile_begin to tile_end of an item. `cursors` [queries] is scratch.
class TileWalk {
 public:
  TileWalk(const KeyStream& stream, const WorkItem& item, std::int32_t* cursors);

  /// Moves to the next tile; false at the end.
  [[nodiscard]] bool next();
  [[nodiscard]] std::int32_t tile() const { return tile_; }
  /// All 128 keys exist and every query of the item sees them all.
  [[nodiscard]] bool full() const;
  /// Visible keys of each query, [queries][2].
  void visible(std::uint64_t* words);

 private:
  const KeyStream* stream_;
  std::span<const TileRun> runs_;
  std::int32_t* cursors_;
  std::int32_t q_begin_, q_end_, tile_end_;
  std::size_t run_ = 0;
  std::int32_t tile_;
};

/// Each group's stretch of the tile from the words of its rows; returns pairs whose score is computed.
std::int64_t trim_groups(int num_rows, const std::uint64_t* words, kernels::GroupRange* groups);
/// Some group has a chunk in which not every row sees every key.
[[nodiscard]] bool has_unseen_pairs(int num_rows, const kernels::GroupRange* groups);

}  // namespace sightline
