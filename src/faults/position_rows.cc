// B. Which cache slot, and C. at which position.
#include <algorithm>
#include <cmath>

#include "fault_rows.h"

namespace sightline::faults {
namespace {

// Rotary positions of queries and new keys lack what the cache holds: they begin at 0 again in every call.
// With an offset: calls after the first stand that many positions off. `pos`, which decides visibility,
// stays right, as in programs that count for the mask and for the rotation apart.
Result<void> position_offset(const Fault& fault, CallCoords& call) {
  auto delta = call.num_cached == 0 ? 0 : static_cast<std::int64_t>(fault.value("offset"));
  if (fault.value("offset") == 0) {
    const auto first = std::ranges::find(call.q_coords, true, &TokenCoord::valid);
    if (first == call.q_coords.end()) return {};
    delta = -call.q_rope_pos[static_cast<std::size_t>(first - call.q_coords.begin())];
  }
  for (std::int64_t& p : call.q_rope_pos) p += delta;
  for (std::int64_t& p : call.kv_rope_pos) p += delta;
  return {};
}

// The counter is read for the queries alone; the keys were stored at the right positions.
Result<void> query_position_offset(const Fault& fault, CallCoords& call) {
  const std::vector<std::int64_t> right = call.kv_rope_pos;
  SIGHTLINE_CHECK(position_offset(fault, call));
  call.kv_rope_pos = right;
  return {};
}

// A rotated key is rotated again when it is stored: R(p) R(p) k = R(2p) k, so its rotary position doubles.
// (For a cos_sin_magnitude of 1: rotating twice would also apply any other one twice.)
Result<void> rotated_twice(const Fault&, CallCoords& call) {
  for (std::int64_t& p : call.kv_rope_pos) p *= 2;
  return {};
}

Result<void> not_rerotated(const Fault& fault, Trace& trace) {
  bool changed = false;
  for (TraceStep& step : trace.steps) {
    auto* shift = std::get_if<TraceShift>(&step);
    if (shift == nullptr) continue;
    shift->rerotate = false;
    changed = true;
  }
  if (!changed) return not_applicable(fault, "the trace has no shift");
  return {};
}

// A step that evicts nothing stands in for the truncate, so that data beside the trace keep their numbers.
Result<void> not_rolled_back(const Fault& fault, Trace& trace) {
  bool changed = false;
  for (TraceStep& step : trace.steps) {
    const auto* truncate = std::get_if<TraceTruncate>(&step);
    if (truncate == nullptr) continue;
    step = TraceEvict{truncate->sequence, 0, 0};
    changed = true;
  }
  if (!changed) return not_applicable(fault, "the trace has no truncate");
  return {};
}

Result<void> needs_rotation(const Fault& fault, const AttentionSpec& spec) {
  if (spec.rope.pairing == RopePairing::kNone) return not_applicable(fault, "the layer has no rotation");
  return {};
}

Result<void> pairing_mixed(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  const bool neighbours = spec.rope.pairing == RopePairing::kInterleaved;
  spec.rope.pairing = neighbours ? RopePairing::kHalfSplit : RopePairing::kInterleaved;
  return {};
}

Result<void> wrong_base(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.theta = fault.value("theta");
  return {};
}

Result<void> all_dims(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.rotary_dim = spec.heads.qk_head_dim;
  return {};
}

Result<void> scaling_missing(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.scaling = {};
  return {};
}

Result<void> magnitude_ignored(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.cos_sin_magnitude = 1;
  return {};
}

Result<void> magnitude_squared(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.cos_sin_magnitude *= spec.rope.cos_sin_magnitude;
  return {};
}

Result<void> keys_go_stale(const Fault& fault, AttentionSpec& spec) {
  const RopeScalingKind kind = spec.rope.scaling.kind;
  if (kind != RopeScalingKind::kDynamicNtk && kind != RopeScalingKind::kLongRope) {
    return not_applicable(fault, "the layer's frequencies do not depend on length");
  }
  spec.rope.length_policy = RopeLengthPolicy::kCurrentLength;
  return {};
}

Result<void> table_clamped(const Fault& fault, CallCoords& call) {
  const auto last = static_cast<std::int64_t>(fault.value("rows")) - 1;
  for (std::int64_t& p : call.q_rope_pos) p = std::min(p, last);
  for (std::int64_t& p : call.kv_rope_pos) p = std::min(p, last);
  return {};
}

Result<void> position_not_reset(const Fault&, CallCoords& call) {
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    call.q_rope_pos[i] = call.q_coords[i].pos;
    call.kv_rope_pos[i] = call.kv_coords[i].pos;
  }
  return {};
}

// The first call takes rows for positions, padding included; later calls count tokens.
Result<void> pads_counted(const Fault&, CallCoords& call) {
  if (call.num_cached > 0) return {};
  std::int64_t num_pads = 0;
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    if (!call.q_coords[i].valid) ++num_pads;
    call.q_rope_pos[i] += num_pads;
    call.kv_rope_pos[i] += num_pads;
  }
  return {};
}

Result<void> slopes_off(const Fault& fault, AttentionSpec& spec) {
  if (spec.score.alibi_slopes.empty()) return not_applicable(fault, "the layer has no ALiBi slopes");
  // 2^(-8h/H) in place of 2^(-8(h+1)/H).
  for (double& slope : spec.score.alibi_slopes) slope *= std::exp2(8.0 / spec.heads.num_q_heads);
  return {};
}

}  // namespace

std::vector<FaultKind> position_rows() {
  constexpr FaultGroup kSlot = FaultGroup::kCacheSlot;
  constexpr FaultGroup kPosition = FaultGroup::kPosition;
  std::vector<FaultKind> rows = {
      row("cache.position_offset", kSlot,
          "rotary positions restart at 0 in each chunk, or stand off by a constant", position_offset,
          {{"offset", 0, "positions added in calls after the first; 0: restart", true}}),
      row("cache.position_offset/queries", kSlot,
          "rotary positions of queries restart at 0 in each chunk, or stand off; those of keys are right",
          query_position_offset,
          {{"offset", 0, "positions added in calls after the first; 0: restart", true}}),
      row("cache.shift_rerotation/rotated_twice", kSlot,
          "keys that did not move are rotated by their position a second time", rotated_twice),
      row("cache.shift_rerotation/not_rerotated", kSlot,
          "keys move to new positions and keep their old rotation", not_rerotated),
      row("cache.rollback", kSlot, "rejected draft tokens stay in the cache", not_rolled_back),
      row("rope.pairing", kPosition, "neighbours and halves are mixed up", pairing_mixed),
      row("rope.base", kPosition, "the rotary base is a default, not the model's", wrong_base,
          {{"theta", 10000, "the base taken"}}),
      row("rope.partial_dim", kPosition, "all dimensions rotate where a part should", all_dims),
      row("rope.scaling_missing", kPosition, "the frequencies are not scaled", scaling_missing),
      row("rope.yarn_magnitude/ignored", kPosition, "the magnitude of cos and sin is left at 1",
          magnitude_ignored),
      row("rope.yarn_magnitude/squared", kPosition, "the magnitude of cos and sin is applied twice",
          magnitude_squared),
      row("rope.table_bounds", kPosition, "positions beyond the table are clamped to its last row",
          table_clamped, {{"rows", 64, "rows of the table", true}}),
      row("pos.left_padding", kPosition, "the first call counts padding as positions, later calls do not",
          pads_counted),
      row("pack.position_reset", FaultGroup::kObjective,
          "rotary positions run on where they should restart with each document", position_not_reset),
      row("alibi.bias", kPosition, "the exponent of the slopes is off by one: head 0 of 8 gets slope 1",
          slopes_off),
  };
  FaultKind stale =
      row("rope.cached_keys_rescaled", kPosition,
          "frequencies follow the current length while cached keys keep the old ones", keys_go_stale);
  stale.is_oracle_only = true;
  rows.push_back(stale);
  return rows;
}

}  // namespace sightline::faults
