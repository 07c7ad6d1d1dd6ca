#include "bench/attention_check.h"

#include <algorithm>
#include <cmath>

#include "sightline/reference/attention.h"

namespace sightline::bench {

namespace {

// One row and head by the plain method in f32: every logit, then the softmax, then the sum.
std::vector<float> plain_row(const SequenceResult& in, std::int64_t row, int head) {
  const AttentionSpec& spec = *in.spec;
  const int group = kv_head_for(spec.heads, head);
  const auto at = static_cast<std::size_t>(head);
  const auto scale = static_cast<float>(softmax_scale(spec.score, spec.heads));
  const auto cap = static_cast<float>(spec.score.logit_softcap);
  const TokenRef query{in.q_coords[static_cast<std::size_t>(row)], row};
  std::vector<float> logits;
  std::vector<std::int64_t> seen;
  float max = -HUGE_VALF;
  for (std::int64_t j = 0; j < in.k.shape[0]; ++j) {
    const TokenRef key{in.kv_coords[static_cast<std::size_t>(j)], j};
    if (!is_visible(spec.mask, in.tables, query, key)) continue;
    float x = 0.0F;
    for (int i = 0; i < spec.heads.qk_head_dim; ++i) x += in.q(row, head, i) * in.k(j, group, i);
    x *= scale;
    if (cap > 0.0F) x = cap * std::tanh(x / cap);
    if (!spec.score.alibi_slopes.empty()) {
      x += static_cast<float>(spec.score.alibi_slopes[at]) *
           static_cast<float>(key.coord.pos - query.coord.pos);
    }
    logits.push_back(x);
    seen.push_back(j);
    max = std::max(max, x);
  }
  const bool has_sink = !spec.score.sink_logits.empty();
  const float sink = has_sink ? static_cast<float>(spec.score.sink_logits[at]) : -HUGE_VALF;
  max = std::max(max, sink);
  std::vector<float> out(static_cast<std::size_t>(spec.heads.v_head_dim), 0.0F);
  float sum = has_sink ? std::exp(sink - max) : 0.0F;
  for (std::size_t n = 0; n < seen.size(); ++n) {
    const float p = std::exp(logits[n] - max);
    sum += p;
    for (int i = 0; i < spec.heads.v_head_dim; ++i)
      out[static_cast<std::size_t>(i)] += p * in.v(seen[n], group, i);
  }
  if (seen.empty()) return out;
  for (float& x : out) x /= sum;
  return out;
}

// The sum of P|v| of each output.
std::vector<double> value_scales(const SequenceResult& in, const double* weights, int head) {
  std::vector<double> scales(static_cast<std::size_t>(in.spec->heads.v_head_dim), 0.0);
  for (std::int64_t j = 0; j < in.k.shape[0]; ++j) {
    if (weights[j] == 0.0) continue;
    const float* v = &in.v(j, kv_head_for(in.spec->heads, head), 0);
    for (std::size_t i = 0; i < scales.size(); ++i) {
      scales[i] +=
          weights[j] * std::abs(static_cast<double>(v[static_cast<std::int64_t>(i) * in.v.strides[2]]));
    }
  }
  return scales;
}

std::vector<double> widen(const StridedView<const float, 3>& from) {
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(from.size()));
  for (std::int64_t a = 0; a < from.shape[0]; ++a) {
    for (std::int64_t b = 0; b < from.shape[1]; ++b) {
      for (std::int64_t c = 0; c < from.shape[2]; ++c) out.push_back(from(a, b, c));
    }
  }
  return out;
}

}  // namespace

Result<void> check_rows(const SequenceResult& in, int num_samples, CheckedError& error) {
  const HeadSpec& heads = in.spec->heads;
  const std::int64_t num_q = in.q.shape[0];
  const std::int64_t num_kv = in.k.shape[0];
  const std::vector<double> k = widen(in.k);
  const std::vector<double> v = widen(in.v);
  const std::int64_t samples = std::min<std::int64_t>(num_samples, num_q);
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::int64_t row = samples == 1 ? num_q - 1 : n * (num_q - 1) / (samples - 1);
    std::vector<double> q;
    for (int h = 0; h < heads.num_q_heads; ++h) {
      for (int i = 0; i < heads.qk_head_dim; ++i) q.push_back(in.q(row, h, i));
    }
    reference::AttentionInputs inputs;
    inputs.q = dense_view<const double, 3>(q.data(), {1, heads.num_q_heads, heads.qk_head_dim});
    inputs.k = dense_view<const double, 3>(k.data(), in.k.shape);
    inputs.v = dense_view<const double, 3>(v.data(), in.v.shape);
    inputs.q_coords = in.q_coords.subspan(static_cast<std::size_t>(row), 1);
    inputs.kv_coords = in.kv_coords;
    if (in.tables.dense.data != nullptr) {  // the oracle's only query is row 0 of its tables
      inputs.tables.dense = in.tables.dense;
      inputs.tables.dense.data += row * in.tables.dense.strides[0];
      inputs.tables.dense.shape[0] = 1;
    }
    SIGHTLINE_TRY(const reference::AttentionOutputs ref,
                  reference::attention_forward(*in.spec, inputs, {.weights = true}));
    for (int head = 0; head < heads.num_q_heads; ++head) {
      const std::vector<float> plain = plain_row(in, row, head);
      const std::vector<double> scales = value_scales(in, ref.weights.data() + head * num_kv, head);
      for (int i = 0; i < heads.v_head_dim; ++i) {
        error.add(in.out(row, head, i), plain[static_cast<std::size_t>(i)],
                  ref.out[static_cast<std::size_t>(head * heads.v_head_dim + i)],
                  scales[static_cast<std::size_t>(i)]);
      }
    }
  }
  return {};
}

}  // namespace sightline::bench
