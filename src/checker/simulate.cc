#include "checker/simulate.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "checker/rounding.h"
#include "sightline/reference/attention.h"

namespace sightline::checker {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One call under the faults: its queries, and all keys that its cache holds.
struct FaultedCall {
  std::int64_t q_begin = 0, q_end = 0;  // rows of the observation
  std::int64_t num_keys = 0;
  CallCoords coords;  // of the queries
};

// The observation's tokens as calls, with the faults that change coordinates planted in each.
class Calls {
 public:
  static Result<Calls> make(const Observation& o, std::span<const Fault> faults) {
    Calls calls;
    const bool changes =
        std::ranges::any_of(faults, [](const Fault& f) { return f.kind->on_call != nullptr; });
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
      return fail(ErrorKind::kInvalidArgument, "diagnose: {} changes nothing here",
                  to_string(faults.front()));
    }
    if (first > 0) calls.calls_.erase(calls.calls_.begin());  // asked about nothing
    return calls;
  }

  [[nodiscard]] const std::vector<FaultedCall>& all() const { return calls_; }
  [[nodiscard]] const CallCoords& keys() const { return keys_; }

 private:
  // Tokens [begin, end) of the keys, appended and asked about by one call.
  Result<void> add(const Observation& o, std::int64_t begin, std::int64_t end,
                   std::span<const Fault> faults) {
    const auto part = [&](const auto& all) { return std::vector(all.begin() + begin, all.begin() + end); };
    const auto rope = o.kv_rope_pos.empty() ? std::vector<std::int64_t>{} : part(o.kv_rope_pos);
    CallCoords call = call_coords(begin, part(o.kv_coords), rope);
    const CallCoords right = call;
    for (const Fault& fault : faults) SIGHTLINE_CHECK(plant(fault, call));
    changed_ = changed_ || !(call == right);
    keys_.kv_coords.insert(keys_.kv_coords.end(), call.kv_coords.begin(), call.kv_coords.end());
    keys_.kv_rope_pos.insert(keys_.kv_rope_pos.end(), call.kv_rope_pos.begin(), call.kv_rope_pos.end());
    const std::int64_t first = o.kv_len() - o.q_len();
    calls_.push_back({begin - first, end - first, end, std::move(call)});
    return {};
  }

  std::vector<FaultedCall> calls_;
  CallCoords keys_;
  bool changed_ = false;
};

// The inputs of one call's selected rows, as arrays of their own.
class CallInputs {
 public:
  CallInputs(const Observation& o, const CallCoords& keys, const FaultedCall& call,
             std::span<const std::int64_t> rows) {
    const HeadSpec& heads = o.spec.heads;
    const auto num_q = static_cast<std::int64_t>(rows.size());
    const std::int64_t q_size = static_cast<std::int64_t>(heads.num_q_heads) * heads.qk_head_dim;
    for (const std::int64_t row : rows) {
      q_.insert(q_.end(), o.q.begin() + row * q_size, o.q.begin() + (row + 1) * q_size);
      q_coords_.push_back(call.coords.q_coords[at(row - call.q_begin)]);
      q_rope_pos_.push_back(call.coords.q_rope_pos[at(row - call.q_begin)]);
    }
    in_.q = dense_view<const double, 3>(q_.data(), {num_q, heads.num_q_heads, heads.qk_head_dim});
    in_.k = dense_view<const double, 3>(o.k.data(), {call.num_keys, heads.num_kv_heads, heads.qk_head_dim});
    in_.v = dense_view<const double, 3>(o.v.data(), {call.num_keys, heads.num_kv_heads, heads.v_head_dim});
    in_.q_coords = q_coords_;
    in_.kv_coords = std::span(keys.kv_coords).first(at(call.num_keys));
    in_.q_rope_pos = q_rope_pos_;
    in_.kv_rope_pos = std::span(keys.kv_rope_pos).first(at(call.num_keys));
    in_.rope_length = o.rope_length;
    if (o.bias.empty()) return;
    for (int h = 0; h < heads.num_q_heads; ++h) {
      for (const std::int64_t row : rows) {
        const auto begin = o.bias.begin() + (h * o.q_len() + row) * o.kv_len();
        bias_.insert(bias_.end(), begin, begin + call.num_keys);
      }
    }
    in_.bias = dense_view<const double, 3>(bias_.data(), {heads.num_q_heads, num_q, call.num_keys});
  }
  CallInputs(const CallInputs&) = delete;

  [[nodiscard]] const reference::AttentionInputs& get() const { return in_; }

 private:
  std::vector<double> q_, bias_;
  std::vector<TokenCoord> q_coords_;
  std::vector<std::int64_t> q_rope_pos_;
  reference::AttentionInputs in_;
};

// Everything that an observation with these faults depends on.
struct Faulted {
  AttentionSpec spec;
  reference::Deviation deviation;
  Calls calls;
};

Result<Faulted> plant_all(const Observation& o, std::span<const Fault> faults) {
  Faulted faulted{o.spec, {}, {}};
  for (const Fault& fault : faults) {
    const FaultKind& kind = *fault.kind;
    if (kind.on_spec == nullptr && kind.on_call == nullptr && kind.on_deviation == nullptr) {
      return fail(ErrorKind::kInvalidArgument, "diagnose: {} does not show in one sequence of calls",
                  to_string(fault));
    }
    SIGHTLINE_CHECK(plant(fault, o.spec, faulted.deviation));
    SIGHTLINE_CHECK(plant(fault, faulted.spec));
  }
  SIGHTLINE_TRY(faulted.calls, Calls::make(o, faults));
  return faulted;
}

// Adds the results of one call: rows [first_idx, ...) of the predicted `num_rows`.
void add_results(const Observation& o, const RoundingBounds& bounds, std::span<const std::int64_t> rows,
                 std::int64_t first_idx, std::int64_t num_rows, std::int64_t num_keys,
                 const reference::AttentionOutputs& got, Prediction& to) {
  const HeadSpec& heads = o.spec.heads;
  const auto num_q = static_cast<std::int64_t>(rows.size());
  for (std::int64_t i = 0; i < num_q; ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const std::int64_t q_head = i * heads.num_q_heads + h;
      const RowResult result{rows[at(i)],
                             h,
                             num_keys,
                             got.weights.data() + (h * num_q + i) * num_keys,
                             got.out.data() + q_head * heads.v_head_dim,
                             got.lse[at(q_head)]};
      if (!o.out.empty()) {
        to.out.values.insert(to.out.values.end(), result.out, result.out + heads.v_head_dim);
        bounds.add_out(result, to.out.bounds);
      }
      if (!o.lse.empty()) {
        to.lse.values.push_back(result.lse);
        bounds.add_lse(result, to.lse.bounds);
      }
      if (!o.weights.empty()) {
        const std::int64_t offset = (h * num_rows + first_idx + i) * o.kv_len();
        std::copy_n(result.weights, num_keys, to.weights.values.begin() + offset);
        bounds.set_weights(result, to.weights.bounds.data() + offset);
      }
    }
  }
}

Result<void> add_gradients(const Observation& o, const RoundingBounds& bounds, const Faulted& faulted,
                           Prediction& to) {
  const HeadSpec& heads = o.spec.heads;
  std::vector<std::int64_t> all_rows(at(o.q_len()));
  std::iota(all_rows.begin(), all_rows.end(), 0);
  const CallInputs in(o, faulted.calls.keys(), faulted.calls.all().front(), all_rows);
  reference::AttentionUpstream upstream;
  upstream.d_out =
      dense_view<const double, 3>(o.d_out.data(), {o.q_len(), heads.num_q_heads, heads.v_head_dim});
  SIGHTLINE_TRY(const reference::AttentionGradients grads,
                reference::attention_backward(faulted.spec, in.get(), upstream, faulted.deviation));
  if (!o.d_q.empty()) to.d_q = {grads.d_q, bounds.of_gradient(grads.d_q)};
  if (!o.d_k.empty()) to.d_k = {grads.d_k, bounds.of_gradient(grads.d_k)};
  if (!o.d_v.empty()) to.d_v = {grads.d_v, bounds.of_gradient(grads.d_v)};
  return {};
}

}  // namespace

Simulator::Simulator(const Observation& observation, std::vector<std::int64_t> rows)
    : observation_(&observation), rows_(std::move(rows)) {}

Result<Prediction> Simulator::predict(std::span<const Fault> faults) const {
  const Observation& o = *observation_;
  SIGHTLINE_TRY(const Faulted faulted, plant_all(o, faults));
  const RoundingBounds bounds(o);
  Prediction prediction;
  const auto num_rows = static_cast<std::int64_t>(rows_.size());
  if (!o.weights.empty()) {
    prediction.weights.values.assign(at(o.spec.heads.num_q_heads * num_rows * o.kv_len()), 0.0);
    prediction.weights.bounds.assign(prediction.weights.values.size(), RoundingBounds::kSmallest);
  }
  auto begin = rows_.begin();
  for (const FaultedCall& call : faulted.calls.all()) {
    const auto end = std::lower_bound(begin, rows_.end(), call.q_end);
    const std::span<const std::int64_t> rows(begin, end);
    if (!rows.empty()) {
      const CallInputs in(o, faulted.calls.keys(), call, rows);
      SIGHTLINE_TRY(
          const reference::AttentionOutputs got,
          reference::attention_forward(faulted.spec, in.get(), {.weights = true}, faulted.deviation));
      add_results(o, bounds, rows, begin - rows_.begin(), num_rows, call.num_keys, got, prediction);
    }
    begin = end;
  }
  if (!o.d_q.empty() || !o.d_k.empty() || !o.d_v.empty()) {
    SIGHTLINE_CHECK(add_gradients(o, bounds, faulted, prediction));
  }
  return prediction;
}

}  // namespace sightline::checker
