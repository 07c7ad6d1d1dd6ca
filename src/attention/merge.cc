// Splits in ascending order, the sink, the division. The same for one thread that ran all splits of a row
// and for many that ran one each.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/call.h"

namespace sightline {

namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// 2^x for x <= 0, a difference of even integers: exact, 0 below the normal range, NaN for NaN.
float power_of_two(float x) {
  if (std::isnan(x)) return x;
  return x < -126.0F ? 0.0F : std::ldexp(1.0F, static_cast<int>(x));
}

// What a sum with maximum `from` counts under the larger maximum `to`, both in the units of RowState.
float factor_between(const ForwardCall& call, float from, float to) {
  if (from == to) return 1.0F;
  if (!call.modifies) return power_of_two(from - to);
  const float factor = std::exp(from - to);
  return factor < std::numeric_limits<float>::min() ? 0.0F : factor;
}

// Adding 0 makes minus 0 plus 0, so that a tiny negative product leaves no trace; one NaN for all.
float output_value(float x, float factor, float divisor) {
  const float value = x * factor / divisor + 0.0F;
  return value == value ? value : std::numeric_limits<float>::quiet_NaN();
}

void scale_row(float* row, int size, float factor) {
  if (factor == 1.0F) return;
  for (int i = 0; i < size; ++i) row[i] *= factor;
}

}  // namespace

void merge_state(const ForwardCall& call, int num_rows, const RowState& part, const RowState& into) {
  const int padded_v_dim = call.padded_v_dim;
  for (int r = 0; r < num_rows; ++r) {
    if (part.sum[r] == 0.0F) continue;  // saw nothing; false for NaN
    float* to = into.out + static_cast<std::ptrdiff_t>(r) * padded_v_dim;
    const float* from = part.out + static_cast<std::ptrdiff_t>(r) * padded_v_dim;
    const float max = part.max[r] > into.max[r] ? part.max[r] : into.max[r];
    const float keep = factor_between(call, into.max[r], max);
    const float add = factor_between(call, part.max[r], max);
    scale_row(to, padded_v_dim, keep);
    for (int i = 0; i < padded_v_dim; ++i) to[i] += from[i] * add;
    into.sum[r] = into.sum[r] * keep + part.sum[r] * add;
    into.max[r] = max;
  }
}

void finish_rows(const ForwardCall& call, const WorkItem& item, const RowState& state) {
  const KeyStream& stream = call.plan->streams[static_cast<std::size_t>(item.stream)];
  const auto& sinks = call.spec->score.sink_logits;
  const int v_dim = call.spec->heads.v_head_dim;
  for (int r = 0; r < item.num_rows(); ++r) {
    const std::int64_t q_row = stream.q_rows[static_cast<std::size_t>(item.q_begin + r / item.num_heads())];
    const int head = item.head_begin + r % item.num_heads();
    const float* row = state.out + static_cast<std::ptrdiff_t>(r) * call.padded_v_dim;
    const double sink = sinks.empty() ? kMinusInfinity : sinks[static_cast<std::size_t>(head)];
    const bool sees_nothing = state.sum[r] == 0.0F;
    double max = call.modifies ? state.max[r] * std::numbers::log2e : state.max[r];  // in log2 units
    double sum = state.sum[r];
    double scale = 1.0;
    if (!sees_nothing && sink > kMinusInfinity) {
      // The sink joins with a maximum of its own, as a split of one key without a value.
      const double sink_log2 = sink * std::numbers::log2e;
      const double new_max = std::max(max, 2.0 * std::ceil(sink_log2 / 2.0));
      scale = std::exp2(max - new_max);
      sum = sum * scale + std::exp2(sink_log2 - new_max);
      max = new_max;
    }
    // Division in f32. The factor is a power of two, which loses nothing, unless a sink meets a natural
    // maximum.
    const float divisor = static_cast<float>(sum);
    const float factor = static_cast<float>(scale);
    float* to = &call.out(q_row, head, 0);
    const std::int64_t stride = call.out.strides[2];
    if (sees_nothing) {
      for (int i = 0; i < v_dim; ++i) to[i * stride] = 0.0F;
    } else if (stride == 1) {
      for (int i = 0; i < v_dim; ++i) to[i] = output_value(row[i], factor, divisor);
    } else {
      for (int i = 0; i < v_dim; ++i) to[i * stride] = output_value(row[i], factor, divisor);
    }
    if (call.lse.data == nullptr) continue;
    const double lse = sees_nothing ? sink : (max + std::log2(sum)) * std::numbers::ln2;
    call.lse(q_row, head) =
        std::isnan(lse) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(lse);
  }
}

void finish_unseeing(const ForwardCall& call, std::int64_t q_row) {
  const auto& sinks = call.spec->score.sink_logits;
  for (int head = 0; head < call.spec->heads.num_q_heads; ++head) {
    for (int i = 0; i < call.spec->heads.v_head_dim; ++i) call.out(q_row, head, i) = 0.0F;
    if (call.lse.data == nullptr) continue;
    call.lse(q_row, head) =
        sinks.empty() ? kMinusInfinity : static_cast<float>(sinks[static_cast<std::size_t>(head)]);
  }
}

void run_merge(const ForwardCall& call, const MergeItem& item) {
  const int rows = item.rows.num_rows();
  const std::ptrdiff_t slot = static_cast<std::ptrdiff_t>(kMaxPartialRows) * (call.padded_v_dim + 2);
  const auto state_at = [&](std::int32_t partial) {
    float* base = call.context->partials.data() + partial * slot;
    return RowState{base, base + kMaxPartialRows, base + 2 * kMaxPartialRows};
  };
  const RowState total = state_at(item.rows.partial);
  for (std::int32_t i = 1; i < item.num_partials; ++i) {
    merge_state(call, rows, state_at(item.rows.partial + i), total);
  }
  finish_rows(call, item.rows, total);
}

}  // namespace sightline
