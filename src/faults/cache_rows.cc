// B. Which cache slot.
#include <algorithm>

#include "fault_rows.h"

namespace sightline::faults {
namespace {

using reference::Deviation;

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

Result<void> all_rotated_twice(const Fault& fault, CallCoords& call) {
  for (std::int64_t& p : call.q_rope_pos) p *= 2;
  return rotated_twice(fault, call);
}

// Keys of the first call moved to the positions that are declared, all but the first `kept`, and are rotated
// as they were `moved` positions further on.
Result<void> moved_unturned(const Fault& fault, CallCoords& call) {
  if (call.num_cached > 0) return {};
  const auto kept = static_cast<std::size_t>(std::max(0.0, fault.value("kept")));
  for (std::size_t j = kept; j < call.kv_rope_pos.size(); ++j) {
    call.kv_rope_pos[j] += static_cast<std::int64_t>(fault.value("moved"));
  }
  return {};
}

// Keys of the first call moved to the positions that are declared, all but the first `kept`, by a rotation
// over the whole head where a part rotates.
Result<void> moved_over_all(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  const int head_dim = spec.heads.qk_head_dim;
  if (spec.rope.pairing == RopePairing::kNone || spec.rope.rotary_dim == head_dim || head_dim % 2 != 0) {
    return not_applicable(fault, "the whole head rotates, or nothing");
  }
  const RopeScalingKind scaling = spec.rope.scaling.kind;
  if (scaling == RopeScalingKind::kLongRope || scaling == RopeScalingKind::kDivisors) {
    return not_applicable(fault, "the frequencies are divided pair by pair, for the rotated part alone");
  }
  deviation.moved_over_all = static_cast<std::int64_t>(fault.value("moved"));
  deviation.moved_kept = static_cast<std::int64_t>(std::max(0.0, fault.value("kept")));
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

Result<void> newest_unread(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.num_unread_newest = static_cast<std::int64_t>(fault.value("newest"));
  return {};
}

Result<void> own_keys_unread(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.own_keys_unread = true;
  return {};
}

Result<void> empty_slots_read(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.num_zero_keys = static_cast<std::int64_t>(fault.value("slots_read"));
  return {};
}

Result<void> needs_slots(const Fault& fault) {
  if (fault.value("slots") >= 1) return {};
  return not_applicable(fault, "a ring has at least one slot");
}

Result<void> masked_by_slot(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_slots(fault));
  deviation.ring_slots = static_cast<std::int64_t>(fault.value("slots"));
  return {};
}

// The ring is the window: what it holds is seen up to the slot whose number is the query's position.
Result<void> future_by_slot(const Fault& fault, AttentionSpec& spec) {
  bool changed = false;
  for (MaskNode& node : spec.mask.nodes) {
    if (node.op != MaskOp::kWindow) continue;
    node = {MaskOp::kAll, 0};
    changed = true;
  }
  if (!changed) return not_applicable(fault, "the mask has no window");
  return {};
}

Result<void> zero_keys_uncounted(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.zero_keys_uncounted = true;
  return {};
}

Result<void> overwritten(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_slots(fault));
  deviation.num_slots_kept = static_cast<std::int64_t>(fault.value("slots"));
  return {};
}

Result<void> turned_early(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_slots(fault));
  if (fault.value("empty") < 1) return not_applicable(fault, "a full ring turns when it should");
  if (fault.value("empty") >= fault.value("slots")) {
    return not_applicable(fault, "a ring that holds nothing has nothing to turn");
  }
  deviation.early_ring_slots = static_cast<std::int64_t>(fault.value("slots"));
  deviation.early_ring_empty = static_cast<std::int64_t>(fault.value("empty"));
  return {};
}

void wrap(std::int64_t num_slots, std::vector<std::int64_t>& positions) {
  for (std::int64_t& p : positions) p = (p % num_slots + num_slots) % num_slots;
}

Result<void> keys_rotated_by_slot(const Fault& fault, CallCoords& call) {
  SIGHTLINE_CHECK(needs_slots(fault));
  wrap(static_cast<std::int64_t>(fault.value("slots")), call.kv_rope_pos);
  return {};
}

Result<void> all_rotated_by_slot(const Fault& fault, CallCoords& call) {
  SIGHTLINE_CHECK(keys_rotated_by_slot(fault, call));
  wrap(static_cast<std::int64_t>(fault.value("slots")), call.q_rope_pos);
  return {};
}

Result<void> values_scaled(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.value_factor = fault.value("times");
  return {};
}

Result<void> cached_keys_scaled(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.cached_key_factor = fault.value("times");
  return {};
}

Result<void> cached_values_scaled(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.cached_value_factor = fault.value("times");
  return {};
}

Result<void> keys_for_values(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.heads.qk_head_dim != spec.heads.v_head_dim) {
    return not_applicable(fault, "keys and values are of different widths");
  }
  deviation.keys_as_values = true;
  return {};
}

}  // namespace

std::vector<FaultKind> cache_rows() {
  constexpr FaultGroup kSlot = FaultGroup::kCacheSlot;
  const FaultParameter slots{"slots", 4, "slots of the ring", true};
  const FaultParameter times{"times", 0.125, "what is read, times what it should be"};
  FaultKind future = row("cache.ring_wrap/future", kSlot,
                         "a ring stands for the window, and slots of it are masked causally as positions",
                         future_by_slot, {slots});
  future.on_deviation = masked_by_slot;
  future.is_oracle_only = true;
  return {
      row("cache.ring_wrap/visibility", kSlot, "keys are masked by their slot of a ring, not their position",
          masked_by_slot, {slots}),
      future,
      row("cache.ring_wrap/keys", kSlot, "keys are rotated by their slot of a ring, not their position",
          keys_rotated_by_slot, {slots}),
      row("cache.ring_wrap/rotation", kSlot, "queries and keys are rotated by slots of a ring",
          all_rotated_by_slot, {slots}),
      row("cache.ring_wrap/overwritten", kSlot,
          "the keys of a call overwrite slots of a ring that its first queries still need", overwritten,
          {slots}),
      needing(
          FaultNeed::kCachedKeys,
          row("cache.ring_wrap/early", kSlot,
              "a ring turns while slots of it are empty: its oldest keys are lost and slots of 0 are read",
              turned_early, {slots, {"empty", 1, "slots that are empty when it begins to turn", true}})),
      row("cache.valid_length/newest_unread", kSlot, "the newest slots are not read", newest_unread,
          {{"newest", 1, "keys at the end that are not read", true}}),
      row("cache.valid_length/before_write", kSlot,
          "the valid length is that before the write: a call does not read its own keys", own_keys_unread),
      row("cache.valid_length/empty_read", kSlot, "slots of 0 behind the written ones are read",
          empty_slots_read, {{"slots_read", 1, "empty slots that are read", true}}),
      needing(
          FaultNeed::kZeroKey,
          row("cache.valid_length/zero_keys", kSlot,
              "the length counts the keys that are not 0: one of 0 is not read and the next is written over",
              zero_keys_uncounted)),
      row("cache.position_offset", kSlot,
          "rotary positions restart at 0 in each chunk, or stand off by a constant", position_offset,
          {{"offset", 0, "positions added in calls after the first; 0: restart", true}}),
      row("cache.position_offset/queries", kSlot,
          "rotary positions of queries restart at 0 in each chunk, or stand off; those of keys are right",
          query_position_offset,
          {{"offset", 0, "positions added in calls after the first; 0: restart", true}}),
      row("cache.shift_rerotation/rotated_twice", kSlot,
          "keys that did not move are rotated by their position a second time", rotated_twice),
      row("cache.shift_rerotation/all_twice", kSlot,
          "queries and keys are rotated by their position a second time", all_rotated_twice),
      needing(FaultNeed::kCachedKeys,
              row("cache.shift_rerotation/moved", kSlot,
                  "keys of the first call but some first ones have moved up and keep their old rotation",
                  moved_unturned,
                  {{"moved", 4, "positions by which they moved", true},
                   {"kept", 0, "first keys that stay", true}})),
      needing(
          FaultNeed::kCachedKeys,
          row("cache.shift_rerotation/over_all", kSlot,
              "keys of the first call but some first ones have moved up and were turned over the whole head",
              moved_over_all,
              {{"moved", 4, "positions by which they moved", true},
               {"kept", 0, "first keys that stay", true}})),
      row("cache.shift_rerotation/not_rerotated", kSlot,
          "keys move to new positions and keep their old rotation", not_rerotated),
      row("cache.rollback", kSlot, "rejected draft tokens stay in the cache", not_rolled_back),
      row("cache.quant_scale/values", kSlot, "values are read without their scale", values_scaled, {times}),
      needing(FaultNeed::kCachedKeys,
              row("cache.quant_scale/cached_keys", kSlot,
                  "keys of earlier calls are read without their scale", cached_keys_scaled, {times})),
      needing(FaultNeed::kCachedKeys,
              row("cache.quant_scale/cached_values", kSlot,
                  "values of earlier calls are read without their scale", cached_values_scaled, {times})),
      row("cache.quant_scale/keys_for_values", kSlot, "cached keys are read in place of values",
          keys_for_values),
  };
}

}  // namespace sightline::faults
