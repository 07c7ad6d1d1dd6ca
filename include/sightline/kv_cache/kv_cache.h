// Pages of keys and values of many sequences and layers, with sharing. Storage only: what is visible is
// a rule of the mask. Rotates keys where the spec stores them rotated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/kv_cache/kv_view.h"
#include "sightline/spec/attention_spec.h"

namespace sightline {

using SequenceId = std::int64_t;

struct KvCacheOptions {
  int page_size = 64;          ///< tokens a page; 16 to 256, a multiple of 16
  std::int64_t max_pages = 0;  ///< pages (of all heads of one layer) in all; 0: no limit
  StorageType key_type = StorageType::kF32;
  StorageType value_type = StorageType::kF32;
  std::int64_t rope_length = 0;  ///< tokens each sequence is set up for (length-dependent rope kinds)
  /// Fill free and unwritten slots with signalling NaN. On in all our tests; costs one write a freed slot.
  bool poison = false;
};

struct KvCacheStats {
  std::int64_t num_pages_allocated = 0;  ///< pages held by sequences, shared ones once
  std::int64_t num_pages_free = 0;       ///< on the free list
  std::int64_t bytes_allocated = 0;      ///< of both
  /// Sum over valid tokens and layers of num_kv_heads * (qk_head_dim * bytes_k + v_head_dim * bytes_v); a
  /// token that sequences share counts once, one whose page a window freed does not count.
  std::int64_t bytes_used = 0;
  std::int64_t bytes_metadata = 0;  ///< coordinates, rotary positions, tables of pages
};

/// Keys and values of every layer of a model (one AttentionSpec per layer decides heads, rope, cache stage
/// and, through reach_back(mask), which pages a windowed layer frees).
///
/// Positions are the caller's: the cache never derives one from a count of slots. Under
/// PositionPolicy::kInCache nothing is stored differently; the distance is capped on the query's side.
///
/// Threads: `write` of different layers or sequences, `view` and `length` may run at once; everything else
/// runs alone. An operation that fails leaves the cache as it was.
class KvCache {
 public:
  /// Errors (kInvalidArgument): no layer, an invalid spec, RopeLengthPolicy::kCurrentLength (stored keys
  /// would go stale), page size or a limit out of range.
  [[nodiscard]] static Result<KvCache> create(std::vector<AttentionSpec> layers, KvCacheOptions options);
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;
  ~KvCache();

  /// An empty sequence. Ids are never used twice.
  [[nodiscard]] SequenceId add_sequence();
  [[nodiscard]] Result<void> remove_sequence(SequenceId sequence);

  /// Opens the next ordinals of a sequence, one a valid token, in every layer at once: reserves every page
  /// before anything is written and records coordinates and rotary positions (empty: equal to pos). Padding
  /// takes no ordinal and is not stored, so that it leaves no trace in what follows. Then `write` fills each
  /// layer. First, windowed layers give up the pages that no query from the least new
  /// position on can see. Cost: O(tokens appended); cos and sin once for all layers that rotate alike.
  /// Errors: kInvalidArgument (unknown sequence, sizes, pos outside [0, 2^31), the last append not written
  /// to some layer, a position that sees tokens a window has freed), kOutOfMemory (pages needed and left
  /// are named).
  [[nodiscard]] Result<void> append(SequenceId sequence, std::span<const TokenCoord> coords,
                                    std::span<const std::int64_t> rope_pos);

  /// Writes the keys and values of the last `append` for one layer: unrotated keys
  /// [num_tokens, num_kv_heads, qk_head_dim] and values [num_tokens, num_kv_heads, v_head_dim], f32, one row
  /// for each of its coordinates (rows of padding are not read), rounded to the storage type (nearest even);
  /// keys are rotated by their rope_pos first under kAfterRotation. After a `truncate` in between: the rows
  /// up to the last token that is left.
  /// Errors (kInvalidArgument): unknown sequence or layer, shapes, nothing to write.
  [[nodiscard]] Result<void> write(SequenceId sequence, int layer, StridedView<const float, 3> keys,
                                   StridedView<const float, 3> values);

  /// Drops ordinals >= num_tokens, also those that wait for `write`. Errors: kInvalidArgument when a windowed
  /// layer has freed pages that the next position needs (never for taking back a whole append that waits for
  /// `write`; the next append is refused then), or num_tokens is above the length.
  [[nodiscard]] Result<void> truncate(SequenceId sequence, std::int64_t num_tokens);
  /// Drops ordinals [begin, end) in every layer: storage only, ordinals and positions of others stay.
  /// Errors (kInvalidArgument): range, or the last append is not written to some layer.
  [[nodiscard]] Result<void> evict(SequenceId sequence, std::int64_t begin, std::int64_t end);
  /// Moves ordinals [begin, end): pos, segment_start and rope_pos += delta; stored keys are re-rotated by
  /// exactly delta on the rotated dims only (no work under kBeforeRotation). Shared pages are copied first.
  /// Errors: kInvalidArgument (range, pos outside [0, 2^31), the last append not written to some layer, a
  /// move that brings tokens which a window has freed back into sight), kOutOfMemory.
  [[nodiscard]] Result<void> shift(SequenceId sequence, std::int64_t begin, std::int64_t end,
                                   std::int64_t delta);
  /// A new sequence that shares every page; a page is copied when either side writes to it.
  /// Errors (kInvalidArgument): unknown sequence, or its last append is not written to some layer.
  [[nodiscard]] Result<SequenceId> fork(SequenceId sequence);

  /// Ordinals opened so far, evicted ones included; padding takes none.
  [[nodiscard]] Result<std::int64_t> length(SequenceId sequence) const;
  /// Tokens that are not evicted.
  [[nodiscard]] Result<std::int64_t> num_valid(SequenceId sequence) const;
  /// What attention reads. Cost: O(1), no copy. Before `write`, the tokens of the last append hold poison or
  /// zeros; their coordinates are there, so that a batch can be planned.
  [[nodiscard]] Result<KvView> view(SequenceId sequence, int layer) const;
  [[nodiscard]] int num_layers() const;
  /// As given to `create`: attention needs the same rope_length.
  [[nodiscard]] const KvCacheOptions& options() const;
  [[nodiscard]] KvCacheStats stats() const;

 private:
  struct Impl;
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sightline
