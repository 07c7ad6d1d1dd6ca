// Scratch of attention calls, grown to a high-water mark and kept.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/backward_scratch.h"
#include "attention/rope_table.h"
#include "sightline/attention/attention.h"
#include "sightline/base/aligned_buffer.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline {

/// Parts of a thread's scratch that only some calls need.
struct ScratchNeeds {
  bool has_first = true;  ///< first keys under kInCache
  bool is_paged = true;
};

/// What one thread needs for one work item; sizes in plan.h's units. Independent of context length.
struct ThreadScratch {
  AlignedBuffer<float> q;        ///< [12 groups][qk_head_dim][12]
  AlignedBuffer<float> q_first;  ///< the same, for the first keys under kInCache
  AlignedBuffer<float> head;     ///< rows on their way to packed form, [128][widest head]
  AlignedBuffer<float> scores;   ///< [kMaxRows][128]
  AlignedBuffer<float> scores_first;
  AlignedBuffer<float> out;    ///< [kMaxRows][padded_v_dim], of the split being run
  AlignedBuffer<float> total;  ///< the same, of the splits before it
  AlignedBuffer<float> keys;   ///< [8][qk_head_dim][16]: widened or rotated keys of one tile
  AlignedBuffer<float> values;
  AlignedBuffer<float> sums;                 ///< [kMaxRows][kMaxSumLanes]
  AlignedBuffer<float> rows;                 ///< max, rescale, total max, total sum: [5][kMaxRows]
  AlignedBuffer<float> bias;                 ///< [128]
  AlignedBuffer<std::uint64_t> words;        ///< [kMaxRows][2] visible keys of each row
  AlignedBuffer<std::uint64_t> query_words;  ///< [kMaxRows][2] of each query
  AlignedBuffer<std::int32_t> cursors;       ///< [kMaxRows] into each query's ranges
  std::int64_t pairs_computed = 0;
  std::int64_t tiles_careful = 0;

  /// Grows every buffer to what one work item needs.
  void reserve(const HeadSpec& heads, ScratchNeeds needs);
  [[nodiscard]] std::size_t bytes() const;
};

struct AttentionContext::Impl {
  Impl(ThreadPool& p, const kernels::KernelTable& t) : pool(&p), table(&t) {}
  ThreadPool* pool;
  const kernels::KernelTable* table;
  AttentionStats stats;
  std::vector<ThreadScratch> threads;
  AlignedBuffer<float> packed_keys;    ///< [tile, head] in page layout, 128 tokens a page
  AlignedBuffer<float> packed_values;  ///< the same
  AlignedBuffer<std::uint8_t> flags;   ///< [tile, value head]: holds a non-finite value
  AlignedBuffer<float> partials;       ///< [num_partials][16][padded_v_dim + 2]: outputs, maximum, sum
  RopeTable q_rope;
  RopeTable q_first_rope;
  RopeTable kv_rope;
  std::vector<std::int64_t> positions;  ///< of the table being asked for
  BackwardScratch backward;
};

}  // namespace sightline
