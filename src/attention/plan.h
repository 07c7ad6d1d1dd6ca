// What planning hands to running: streams of keys in order of ordinals, what their queries see, and the
// list of work items. No number that a thread count or a batch could change enters a row's arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/attention/attention.h"
#include "sightline/kernels/kernel_table.h"
#include "sightline/kv_cache/rotary_pairs.h"
#include "sightline/visibility/visibility_map.h"

namespace sightline {

inline constexpr int kTileKeys = kernels::kTileKeys;
inline constexpr int kMaxRows = 144;  ///< rows of one work item: a multiple of the micro-kernel's 12
/// Tiles of one split: ranges of 2048 ordinals have their own maximum and sums, merged in order.
inline constexpr std::int64_t kSplitTiles = 16;
inline constexpr int kMaxPartialRows = 16;  ///< items of at most so many rows are cut at splits

/// Keys of one sequence (or of one document, when the mask implies `segment`) in order of ordinals, cut in
/// tiles of 128 ordinals; tiles without a valid key are left out. And the queries that read them.
struct KeyStream {
  std::int64_t sequence = 0;
  std::vector<std::int64_t> q_rows;  ///< rows of the call's query arrays
  std::vector<TokenCoord> q_coords;
  std::vector<std::int64_t> tiles;  ///< ordinal / 128 of each tile, ascending
  std::vector<std::int64_t>
      key_rows;                       ///< [num_tiles, 128]: row in the call (contiguous), slot (paged), or -1
  std::vector<std::int32_t> key_pos;  ///< [num_tiles, 128]
  /// [num_tiles, 2]: keys that kInCache meets with the second query. Empty: none.
  std::vector<std::uint64_t> first_keys;
  VisibilityMap map;
  bool in_place = false;         ///< pages are used as they lie; else keys are packed in each call
  std::int64_t packed_tile = 0;  ///< first tile of this stream in the packed array

  [[nodiscard]] std::int64_t num_tiles() const { return static_cast<std::int64_t>(tiles.size()); }
};

/// Rows of one item: queries of one tile of the map x query heads of one key head; row r is query
/// q_begin + r / num_heads and head head_begin + r % num_heads.
struct WorkItem {
  std::int32_t stream = 0;
  std::int32_t kv_head = 0;
  std::int32_t q_begin = 0, q_end = 0;        ///< within the stream
  std::int32_t head_begin = 0, head_end = 0;  ///< query heads
  std::int32_t tile_begin = 0, tile_end = 0;  ///< tiles of the stream
  std::int32_t partial = -1;                  ///< not -1: one split, stored in this slot for a later merge
  std::int64_t cost = 0;

  [[nodiscard]] int num_heads() const { return head_end - head_begin; }
  [[nodiscard]] int num_rows() const { return (q_end - q_begin) * num_heads(); }
  /// Of one of its rows: the query within the stream, and the query head.
  [[nodiscard]] std::int32_t query_of(int row) const { return q_begin + row / num_heads(); }
  [[nodiscard]] int head_of(int row) const { return head_begin + row % num_heads(); }
};

/// Partials [partial, partial + num_partials) of one block of rows, in order of their splits.
struct MergeItem {
  WorkItem rows;
  std::int32_t num_partials = 0;
};

struct AttentionPlan::Impl {
  HeadSpec heads;
  MaskSpec mask;
  PositionPolicy position_policy = PositionPolicy::kText;
  bool paged = false;
  std::int64_t num_sequences = 0;
  std::int64_t num_q_tokens = 0;
  std::int64_t num_kv_tokens = 0;          ///< contiguous: rows of the call
  std::vector<std::int64_t> q_offsets;     ///< [num_sequences + 1]
  std::vector<std::int64_t> kv_offsets;    ///< contiguous: [num_sequences + 1]
  std::vector<std::int64_t> num_slots;     ///< paged: [num_sequences]
  std::vector<std::int64_t> slot_offsets;  ///< paged: slots of the sequences before each
  std::vector<std::int64_t> unseeing;      ///< rows of invalid queries: output 0
  std::vector<KeyStream> streams;
  std::vector<WorkItem> items;  ///< in the order they are taken
  std::vector<MergeItem> merges;
  std::int32_t num_partials = 0;
  std::vector<std::int32_t> packed_streams;  ///< streams that are not in place and have tiles
  std::int64_t num_packed_tiles = 0;         ///< of all of them
  std::int64_t pairs_visible = 0;            ///< times query heads
};

/// The rows of one item, without its tiles: queries of one tile of the stream's map x at most kMaxRows query
/// heads of `kv_head`, from the group's `head` on.
[[nodiscard]] WorkItem item_rows(const AttentionPlan::Impl& plan, std::int32_t stream, std::int64_t q_tile,
                                 std::int32_t kv_head, int head);
/// Fills streams (all but the map) from caller's arrays.
[[nodiscard]] Result<void> order_contiguous(const AttentionSpec& spec, const QueryBatch& queries,
                                            const ContiguousKv& kv, AttentionPlan::Impl& plan);
/// The same from cache pages.
[[nodiscard]] Result<void> order_paged(const AttentionSpec& spec, const QueryBatch& queries,
                                       const PagedKv& kv, AttentionPlan::Impl& plan);

}  // namespace sightline
