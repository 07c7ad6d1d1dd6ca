// What every call does before its first item: what follows from the spec is derived once, and the rotations
// of its tokens are laid out.
#include <algorithm>

#include "attention/call.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t rope_pos_of(std::span<const std::int64_t> rope_pos, std::span<const TokenCoord> coords,
                         std::size_t row) {
  if (!coords[row].valid) return 0;
  return rope_pos.empty() ? coords[row].pos : rope_pos[row];
}

}  // namespace

void derive(AttentionCall& call) {
  const ScoreSpec& score = call.spec->score;
  call.padded_v_dim = call.packed_layout().padded_v_dim();
  call.key_heads = call.value_heads = call.spec->heads.num_kv_heads;
  if (call.contiguous != nullptr) {
    if (call.contiguous->k.strides[1] == 0) call.key_heads = 1;
    if (call.contiguous->v.strides[1] == 0) call.value_heads = 1;
  }
  const RopeSpec& rope = call.spec->rope;
  if (rope.pairing != RopePairing::kNone && rope.position_policy == PositionPolicy::kInCache) {
    call.num_first = reach_back(call.spec->mask).num_first;
  }
  const double scale = softmax_scale(score, call.spec->heads);
  call.scale_log2 = static_cast<float>(scale * 1.4426950408889634);
  // The fused scale needs a finite, positive factor: the maximum of scores is then that of dot products.
  call.modifies = score.logit_softcap > 0.0 || !score.alibi_slopes.empty() ||
                  call.extras->bias.data != nullptr || !(call.scale_log2 > 0.0F);
  call.table = call.context->table;
}

void prepare_rotation(const AttentionCall& call, const QueryBatch& queries) {
  AttentionContext::Impl& context = *call.context;
  const RopeSpec& rope = call.spec->rope;
  const std::int64_t length = call.extras->rope_length;
  std::vector<std::int64_t>& positions = context.positions;
  positions.resize(queries.coords.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = rope_pos_of(queries.rope_pos, queries.coords, i);
  }
  context.q_rope.prepare(rope, length, positions, *context.pool);
  if (call.num_first > 0) {
    const ReachBack reach = reach_back(call.spec->mask);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const TokenCoord& q = queries.coords[i];
      if (!q.valid) continue;
      positions[i] = in_cache_rope_pos(positions[i], q.pos - q.segment_start, reach.num_first + reach.window);
    }
    context.q_first_rope.prepare(rope, length, positions, *context.pool);
  }
  positions.clear();
  if (call.contiguous != nullptr) {
    for (std::size_t i = 0; i < call.contiguous->coords.size(); ++i) {
      positions.push_back(rope_pos_of(call.contiguous->rope_pos, call.contiguous->coords, i));
    }
  } else if (std::ranges::any_of(call.paged->views, [](const KvView& view) {
               return view.stage == CacheStage::kBeforeRotation;
             })) {
    // Rotated pages need no table; rows of a sequence begin at its slot offset.
    for (std::size_t s = 0; s < call.paged->views.size(); ++s) {
      const KvView& view = call.paged->views[s];
      const auto slots = view.stage == CacheStage::kBeforeRotation ? at(view.num_slots) : std::size_t{0};
      positions.resize(at(call.plan->slot_offsets[s]), 0);
      for (std::size_t i = 0; i < slots; ++i)
        positions.push_back(view.coords[i].valid ? view.rope_pos[i] : 0);
    }
  }
  context.kv_rope.prepare(rope, length, positions, *context.pool);
}

}  // namespace sightline
