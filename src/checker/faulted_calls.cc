#include "checker/faulted_calls.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sightline::checker {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::vector<std::int64_t> all_rows(const Observation& o) {
  std::vector<std::int64_t> rows(at(o.q_len()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

Result<Calls> Calls::make(const Observation& o, std::span<const Fault> faults) {
  Calls calls;
  const bool changes = std::ranges::any_of(faults, [](const Fault& f) { return f.kind->on_call != nullptr; });
  if (!o.is_self_attention()) {
    if (changes) {
      return fail(ErrorKind::kInvalidArgument, "diagnose: the queries are not the last tokens of the keys");
    }
    calls.keys_ = call_coords(0, o.kv_coords, o.kv_rope_pos);
    FaultedCall call{0, o.q_len(), o.kv_len(), call_coords(0, o.q_coords, o.q_rope_pos)};
    calls.calls_.push_back(std::move(call));
    return calls;
  }
  const std::int64_t first = o.kv_len() - o.q_len();
  if (first > 0) SIGHTLINE_CHECK(calls.add(o, 0, first, faults));
  std::vector<std::int64_t> begins = o.call_begins.empty() ? std::vector<std::int64_t>{0} : o.call_begins;
  begins.push_back(o.q_len());
  for (std::size_t c = 0; c + 1 < begins.size(); ++c) {
    SIGHTLINE_CHECK(calls.add(o, first + begins[c], first + begins[c + 1], faults));
  }
  const bool changes_more = std::ranges::any_of(
      faults, [](const Fault& f) { return f.kind->on_spec != nullptr || f.kind->on_deviation != nullptr; });
  if (changes && !calls.changed_ && !changes_more) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: {} changes nothing here", to_string(faults.front()));
  }
  if (first > 0) calls.calls_.erase(calls.calls_.begin());  // asked about nothing
  return calls;
}

// Tokens [begin, end) of the keys, appended and asked about by one call.
Result<void> Calls::add(const Observation& o, std::int64_t begin, std::int64_t end,
                        std::span<const Fault> faults) {
  const auto part = [&](const auto& all) { return std::vector(all.begin() + begin, all.begin() + end); };
  const auto rope = o.kv_rope_pos.empty() ? std::vector<std::int64_t>{} : part(o.kv_rope_pos);
  CallCoords call = call_coords(begin, part(o.kv_coords), rope);
  const auto num_drafts = static_cast<std::int64_t>(o.draft_parents.size());
  call.num_drafts = std::clamp<std::int64_t>(end - (o.kv_len() - num_drafts), 0, end - begin);
  const CallCoords right = call;
  for (const Fault& fault : faults) SIGHTLINE_CHECK(plant(fault, call));
  changed_ = changed_ || !(call == right);
  keys_.kv_coords.insert(keys_.kv_coords.end(), call.kv_coords.begin(), call.kv_coords.end());
  keys_.kv_rope_pos.insert(keys_.kv_rope_pos.end(), call.kv_rope_pos.begin(), call.kv_rope_pos.end());
  for (std::size_t i = 0; i < call.kv_coords.size(); ++i) {
    if (call.kv_coords[i].valid) rope_length_ = std::max(rope_length_, call.kv_rope_pos[i] + 1);
  }
  rope_lengths_.resize(keys_.kv_coords.size(), rope_length_);
  const std::int64_t first = o.kv_len() - o.q_len();
  append_begins_.push_back(begin);
  calls_.push_back({begin - first, end - first, end, std::move(call)});
  return {};
}

CallInputs::CallInputs(const Observation& o, const AttentionSpec& spec, const Arrays& arrays,
                       const Calls& calls, const FaultedCall& call, std::span<const std::int64_t> rows) {
  const CallCoords& keys = calls.keys();
  const HeadSpec& heads = o.spec.heads;
  const auto num_q = static_cast<std::int64_t>(rows.size());
  const std::int64_t q_size = static_cast<std::int64_t>(heads.num_q_heads) * heads.qk_head_dim;
  for (const std::int64_t row : rows) {
    q_.insert(q_.end(), arrays.q.begin() + row * q_size, arrays.q.begin() + (row + 1) * q_size);
    q_coords_.push_back(call.coords.q_coords[at(row - call.q_begin)]);
    q_rope_pos_.push_back(call.coords.q_rope_pos[at(row - call.q_begin)]);
  }
  in_.q = dense_view<const double, 3>(q_.data(), {num_q, heads.num_q_heads, heads.qk_head_dim});
  in_.k =
      dense_view<const double, 3>(arrays.k.data(), {call.num_keys, heads.num_kv_heads, heads.qk_head_dim});
  in_.v = dense_view<const double, 3>(arrays.v.data(), {call.num_keys, heads.num_kv_heads, heads.v_head_dim});
  in_.q_coords = q_coords_;
  in_.kv_coords = std::span(keys.kv_coords).first(at(call.num_keys));
  in_.q_rope_pos = q_rope_pos_;
  in_.kv_rope_pos = std::span(keys.kv_rope_pos).first(at(call.num_keys));
  in_.rope_length = o.rope_length;
  in_.num_cached = call.coords.num_cached;
  // Keys rotated by the length of their time keep that rotation.
  const bool goes_stale = spec.rope.length_policy == RopeLengthPolicy::kCurrentLength &&
                          spec.rope.cache_stage == CacheStage::kAfterRotation;
  if (goes_stale && !calls.rope_lengths().empty()) {
    in_.kv_rope_length = std::span(calls.rope_lengths()).first(at(call.num_keys));
  }
  in_.append_begins = calls.append_begins();
  if (!o.dense.empty()) {
    for (const std::int64_t row : rows) {
      const auto begin = o.dense.begin() + row * o.kv_len();
      dense_.insert(dense_.end(), begin, begin + call.num_keys);
    }
    in_.tables.dense = dense_view<const std::uint8_t, 2>(dense_.data(), {num_q, call.num_keys});
  }
  if (uses(o.spec.mask, MaskOp::kTree)) {
    const std::vector<std::int32_t> of_queries = draft_nodes(o.q_len(), o.draft_parents.size());
    for (const std::int64_t row : rows) q_node_.push_back(of_queries[at(row)]);
    kv_node_ = draft_nodes(o.kv_len(), o.draft_parents.size());
    in_.tables.q_node = q_node_;
    in_.tables.kv_node = std::span(kv_node_).first(at(call.num_keys));
    in_.tables.parent = o.draft_parents;
  }
  if (o.bias.empty()) return;
  for (int h = 0; h < heads.num_q_heads; ++h) {
    for (const std::int64_t row : rows) {
      const auto begin = o.bias.begin() + (h * o.q_len() + row) * o.kv_len();
      bias_.insert(bias_.end(), begin, begin + call.num_keys);
    }
  }
  in_.bias = dense_view<const double, 3>(bias_.data(), {heads.num_q_heads, num_q, call.num_keys});
}

Arrays arrays_of(const Observation& o, const Faulted& faulted) {
  if (faulted.rearranged) {
    return {faulted.rearranged->q(), faulted.rearranged->k(), faulted.rearranged->v()};
  }
  return {o.q, o.k, o.v};
}

namespace {

Result<void> rearrange(const Observation& o, Faulted& faulted) {
  if (!reference::rearranges_features(faulted.deviation)) return {};
  const bool is_fused = faulted.deviation.fused_layout != reference::FusedLayout::kRight;
  if (is_fused && (!o.is_self_attention() || o.q_len() != o.kv_len())) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: not every key has its query");
  }
  const FaultedCall whole{0, o.q_len(), o.kv_len(), call_coords(0, o.q_coords, o.q_rope_pos)};
  const CallInputs in(o, o.spec, {o.q, o.k, o.v}, faulted.calls, whole, all_rows(o));
  SIGHTLINE_TRY(
      reference::MisreadInputs misread,
      reference::MisreadInputs::make(o.spec, in.get(), reference::only_rearranging(faulted.deviation)));
  faulted.rearranged.emplace(std::move(misread));
  return {};
}

}  // namespace

Result<Faulted> plant_all(const Observation& o, std::span<const Fault> faults) {
  Faulted faulted{o.spec, {}, {}, {}};
  for (const Fault& fault : faults) {
    const FaultKind& kind = *fault.kind;
    if (kind.on_spec == nullptr && kind.on_call == nullptr && kind.on_deviation == nullptr) {
      return fail(ErrorKind::kInvalidArgument, "diagnose: {} does not show in one sequence of calls",
                  to_string(fault));
    }
    SIGHTLINE_CHECK(plant(fault, o.spec, faulted.deviation));
    SIGHTLINE_CHECK(plant(fault, faulted.spec));
  }
  if (faulted.deviation.own_keys_unread && !o.is_self_attention()) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: the queries are not the last tokens of the keys");
  }
  SIGHTLINE_TRY(faulted.calls, Calls::make(o, faults));
  SIGHTLINE_CHECK(rearrange(o, faulted));
  return faulted;
}

}  // namespace sightline::checker
