// Scratch of the backward, grown to a high-water mark and kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/plan.h"
#include "sightline/base/aligned_buffer.h"

namespace sightline {

/// What one thread needs for one key tile and one block of rows against it. Independent of context length.
struct BackwardThread {
  AlignedBuffer<float> rows;                 ///< rows on their way to packed form, [128][widest head]
  AlignedBuffer<float> keys;                 ///< [8][qk_head_dim][16], rotated: q k^T
  AlignedBuffer<float> key_rows;             ///< [8][padded_qk_dim / 16][16][16], the same keys: dS k
  AlignedBuffer<float> values;               ///< [8][v_head_dim][16]: dO v^T
  AlignedBuffer<float> scores;               ///< [kMaxRows][128]: dot products, then P
  AlignedBuffer<float> d_weights;            ///< [kMaxRows][128]: dP, then dS
  AlignedBuffer<float> cap_slope;            ///< [kMaxRows][128], only with a softcap
  AlignedBuffer<float> kept;                 ///< [kMaxRows][128], only with dropout
  AlignedBuffer<float> d_keys;               ///< [qk_head_dim][128]
  AlignedBuffer<float> d_values;             ///< [v_head_dim][128]
  AlignedBuffer<float> ones;                 ///< [kMaxRows]: d_q is added to, not rescaled
  AlignedBuffer<float> bias;                 ///< [128]
  AlignedBuffer<std::uint64_t> words;        ///< [kMaxRows][2]
  AlignedBuffer<std::uint64_t> query_words;  ///< [kMaxRows][2]
  std::int64_t pairs_computed = 0;
  std::int64_t tiles_careful = 0;

  /// Grows every buffer; `has_softcap` and `has_dropout` decide those that only some calls need.
  void reserve(const HeadSpec& heads, bool has_softcap, bool has_dropout);
  [[nodiscard]] std::size_t bytes() const;
};

/// Rows that are packed and summed together: those of one WorkItem of the forward.
struct RowBlock {
  WorkItem item;
  std::int64_t first_row = 0;  ///< in the arrays of the wave; a multiple of 12
  bool flagged = false;        ///< a non-finite q or dO
  bool far = false;            ///< an lse whose rounding shows in weights: shares are summed first
};

/// One stream and key head: its blocks of rows are [block_begin, block_end) of the wave.
struct BackwardUnit {
  std::int32_t stream = 0;
  std::int32_t kv_head = 0;
  std::int32_t block_begin = 0, block_end = 0;
  std::int64_t first_slope = 0;  ///< of its partials in BackwardScratch::d_slopes
};

/// One key tile of one unit.
struct KeyTileItem {
  std::int32_t unit = 0;
  std::int32_t tile = 0;
};

/// Units that run together, and their arrays; padded to 12 rows a group.
struct BackwardWave {
  std::vector<BackwardUnit> units;
  std::vector<RowBlock> blocks;
  std::vector<KeyTileItem> items;  ///< in the order they are taken
  std::int64_t num_rows = 0;
  std::int64_t next_slope = 0;  ///< of the first unit of the next wave
  AlignedBuffer<float> q;       ///< packed rows, rotated: [group][qk_head_dim][12]
  AlignedBuffer<float> d_out;   ///< packed rows: [group][v_head_dim][12]
  AlignedBuffer<float> d_q;     ///< [num_rows][padded_qk_dim], rotated, before the scale
  AlignedBuffer<float> lse;     ///< [num_rows], in the units of the scores
  AlignedBuffer<float> share;   ///< [num_rows]
  AlignedBuffer<float> delta;   ///< [num_rows]
  AlignedBuffer<double> sums;   ///< [num_rows]: of e^(logit - lse), of far blocks
  /// Key tiles that each block has taken in: a tile adds to d_q when it is the next.
  std::unique_ptr<std::atomic<std::int32_t>[]> taken;
  std::size_t taken_size = 0;

  void clear();
  void restart_turns();
  void reserve(const HeadSpec& heads);
  [[nodiscard]] std::size_t bytes() const;
};

struct BackwardScratch {
  std::vector<BackwardThread> threads;
  BackwardWave wave;
  /// Partials of d_alibi: [stream][key head][tile][head of the group].
  std::vector<double> d_slopes;
  std::vector<double> d_sinks;  ///< [num_q_heads], of the waves so far
  [[nodiscard]] std::size_t bytes() const;
};

}  // namespace sightline
