// One call as its parts see it: the arguments, the plan and the scratch. AttentionCall is what forward and
// backward share; the backward's own is in backward_call.h.
#pragma once

#include "attention/context.h"
#include "attention/plan.h"

namespace sightline {

struct AttentionCall {
  const AttentionSpec* spec = nullptr;
  const AttentionPlan::Impl* plan = nullptr;
  const kernels::KernelTable* table = nullptr;
  StridedView<const float, 3> q;
  const AttentionExtras* extras = nullptr;
  const ContiguousKv* contiguous = nullptr;  ///< one of the two
  const PagedKv* paged = nullptr;
  AttentionContext::Impl* context = nullptr;

  // Derived once.
  int padded_v_dim = 0;
  int key_heads = 0;  ///< heads packed: 1 when the caller's head stride is 0
  int value_heads = 0;
  std::int64_t num_first = 0;  ///< first keys under kInCache; 0: none
  float scale_log2 = 0.0F;     ///< to log2 units, where scores are just scaled
  bool modifies = false;       ///< softcap, bias, ALiBi, or a scale that is not positive

  [[nodiscard]] PageLayout packed_layout() const {
    return {kTileKeys, spec->heads.qk_head_dim, spec->heads.v_head_dim};
  }
};

struct ForwardCall : AttentionCall {
  StridedView<float, 3> out;
  StridedView<float, 2> lse;
};

/// Fills what is derived once, from spec, extras and where the keys lie.
void derive(AttentionCall& call);
/// cos and sin of every token of the call, in its context.
void prepare_rotation(const AttentionCall& call, const QueryBatch& queries);

/// Where the keys and values of one tile and key head lie.
struct TileOperands {
  const float* keys[kernels::kTileChunks] = {};
  const float* values[kernels::kTileChunks] = {};
  bool values_flagged = false;
};

/// Brings keys and values of streams that are not in place to packed tiles; sets stats.bytes_packed.
void pack_streams(const ForwardCall& call);
/// The operands of a tile; pages that are not plain f32, rotated, are widened and rotated into `scratch`.
[[nodiscard]] TileOperands tile_operands(const ForwardCall& call, const KeyStream& stream, std::int64_t tile,
                                         int kv_head, ThreadScratch& scratch);

/// Runs one item: its rows against its tiles.
void run_item(const ForwardCall& call, const WorkItem& item, ThreadScratch& scratch);
/// Merges the partials of rows whose splits ran as items of their own.
void run_merge(const ForwardCall& call, const MergeItem& item);

/// Running state of the rows of one item: maximum in log2 units, natural ones where the call modifies; sum,
/// outputs [rows][padded_v_dim].
struct RowState {
  float* max = nullptr;
  float* sum = nullptr;
  float* out = nullptr;
};
/// `into` takes in `part`, a later split. Rows that `part` does not see are left alone.
void merge_state(const ForwardCall& call, int num_rows, const RowState& part, const RowState& into);
/// Sink, division, lse: writes the rows of `item` to the caller's arrays. Leaves state.out scaled.
void finish_rows(const ForwardCall& call, const WorkItem& item, const RowState& state);
/// The answer for a query that sees nothing: output 0, lse its sink or minus infinity.
void finish_unseeing(const ForwardCall& call, std::int64_t q_row);

}  // namespace sightline
