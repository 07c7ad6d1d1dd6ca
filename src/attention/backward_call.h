// One attention_backward as its parts see it.
#pragma once

#include "attention/backward_scratch.h"
#include "attention/call.h"
#include "sightline/attention/attention_backward.h"

namespace sightline {

struct BackwardCall : AttentionCall {
  const AttentionUpstream* upstream = nullptr;
  const AttentionGradients* gradients = nullptr;
  BackwardScratch* scratch = nullptr;
  float scale = 0.0F;  ///< of the dot products
  int padded_qk_dim = 0;
  /// Units whose tiles are taken in turn. No bit depends on it, but those of summed cells: 1 for them.
  int num_in_flight = 1;
  bool sums_bias = false;  ///< d_bias repeats cells: everything in one order, on one thread
};

/// Fills `wave` with units from `next_unit` on, as many as its memory may hold; returns the unit after them.
std::int64_t plan_wave(const BackwardCall& call, std::int64_t next_unit, BackwardWave& wave);
[[nodiscard]] std::int64_t num_units(const BackwardCall& call);

/// Packs q and dO of one block, its lse and delta; its d_q becomes 0.
void pack_block(const BackwardCall& call, RowBlock& block, BackwardThread& thread);
/// One key tile's part of the sums of far blocks.
void sum_key_tile(const BackwardCall& call, const KeyTileItem& item, BackwardThread& thread);
/// The shares of one far block, from its sums.
void finish_shares(const BackwardCall& call, const RowBlock& block);
/// One key tile against all its rows: writes d_k and d_v of its keys, adds to the d_q of the blocks.
void run_key_tile(const BackwardCall& call, const KeyTileItem& item, BackwardThread& thread);
/// d_q of one block to the caller's array: the scale, and the rotation back.
void finish_block(const BackwardCall& call, const RowBlock& block);

/// rowsum(dO * O) - d_lse of one row; a row that saw nothing has only its d_lse.
[[nodiscard]] double row_delta(const BackwardCall& call, std::int64_t q_row, int head);

}  // namespace sightline
