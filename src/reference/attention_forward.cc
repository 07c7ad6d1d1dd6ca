#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention_call.h"
#include "sightline/reference/attention.h"
#include "sightline/reference/misread.h"
#include "softmax_row.h"

namespace sightline::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

AttentionOutputs forward(const AttentionCall& call, const Keep& keep) {
  const std::int64_t q_len = call.q_len(), kv_len = call.kv_len();
  const int num_q_heads = call.num_q_heads(), v_dim = call.v_dim();
  const Deviation& deviation = call.deviation();

  AttentionOutputs outputs;
  outputs.out.resize(at(q_len * num_q_heads * v_dim), 0.0);
  outputs.lse.resize(at(q_len * num_q_heads), -kInfinity);
  const std::size_t num_pairs = at(num_q_heads * q_len * kv_len);
  if (keep.weights) outputs.weights.resize(num_pairs, 0.0);
  if (keep.weights) outputs.dropped_weights.resize(num_pairs, 0.0);
  if (keep.scores) outputs.scores.resize(num_pairs, -kInfinity);

  for (std::int64_t i = 0; i < q_len; ++i) {
    const std::vector<bool> visible = call.visible_keys(call.spec().mask, i);
    for (int h = 0; h < num_q_heads; ++h) {
      if (!keep.only.empty() && keep.only[at(i * num_q_heads + h)] == 0) continue;
      const SoftmaxRow row = softmax_row(call, h, i, visible);
      const int kv_head = call.kv_head(h);
      double* out = &outputs.out[at((i * num_q_heads + h) * v_dim)];
      for (std::int64_t j = 0; j < kv_len; ++j) {
        const PairScore& pair = row.pairs[at(j)];
        const std::size_t pair_idx = at((h * q_len + i) * kv_len + j);
        if (keep.scores && pair.counts) outputs.scores[pair_idx] = pair.logit;
        if (row.is_empty || !pair.counts) continue;
        const double weight = row.weights[at(j)] * call.keep_factor(h, i, j);
        for (int c = 0; c < v_dim; ++c) out[c] += weight * call.in().v(j, kv_head, c);
        if (keep.weights) outputs.weights[pair_idx] = row.weights[at(j)];
        if (keep.weights) outputs.dropped_weights[pair_idx] = weight;
      }
      if (row.is_empty && deviation.empty_row_is_nan) {
        for (int c = 0; c < v_dim; ++c) out[c] = std::numeric_limits<double>::quiet_NaN();
      }
      outputs.lse[at(i * num_q_heads + h)] =
          deviation.lse_is_base_2 ? row.lse * std::numbers::log2e : row.lse;
    }
  }
  return outputs;
}

/// The output as it is read back, where its layout deviates.
std::vector<double> laid_out(OutLayout layout, const HeadSpec& heads, const std::vector<double>& out) {
  const auto num_rows =
      static_cast<std::int64_t>(out.size()) / (std::int64_t{heads.num_q_heads} * heads.v_head_dim);
  std::vector<double> read(out.size());
  for (std::int64_t i = 0; i < num_rows; ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const OutSource from = out_source(layout, num_rows, heads.num_q_heads, {i, h});
      std::copy_n(&out[at((from.row * heads.num_q_heads + from.head) * heads.v_head_dim)], heads.v_head_dim,
                  &read[at((i * heads.num_q_heads + h) * heads.v_head_dim)]);
    }
  }
  return read;
}

}  // namespace

Result<AttentionOutputs> attention_forward(const AttentionSpec& spec, const AttentionInputs& inputs,
                                           Keep keep, const Deviation& deviation) {
  // Checks the arrays as they were given, which misreading them relies on.
  SIGHTLINE_TRY(const AttentionCall call, AttentionCall::make(spec, inputs, deviation, "attention_forward"));
  if (!keep.only.empty() && keep.only.size() != at(call.q_len() * call.num_q_heads())) {
    return fail(ErrorKind::kInvalidArgument, "attention_forward: only has {} entries, expected {}",
                keep.only.size(), call.q_len() * call.num_q_heads());
  }
  AttentionOutputs outputs;
  if (misreads_inputs(deviation)) {
    SIGHTLINE_TRY(const MisreadInputs misread, MisreadInputs::make(spec, inputs, deviation));
    SIGHTLINE_TRY(const AttentionCall read,
                  AttentionCall::make(spec, misread.get(), deviation, "attention_forward"));
    outputs = forward(read, keep);
  } else {
    outputs = forward(call, keep);
  }
  if (deviation.out_layout != OutLayout::kTokensFirst) {
    outputs.out = laid_out(deviation.out_layout, spec.heads, outputs.out);
  }
  return outputs;
}

AttentionOutputs merge_by_lse(const AttentionOutputs& a, const AttentionOutputs& b) {
  AttentionOutputs merged;
  merged.out.resize(a.out.size(), 0.0);
  merged.lse.resize(a.lse.size());
  const std::size_t v_dim = a.lse.empty() ? 0 : a.out.size() / a.lse.size();
  for (std::size_t row = 0; row < a.lse.size(); ++row) {
    const double largest = std::max(a.lse[row], b.lse[row]);
    merged.lse[row] = largest;
    if (largest == -kInfinity) continue;
    const double share_a = std::exp(a.lse[row] - largest);
    const double share_b = std::exp(b.lse[row] - largest);
    merged.lse[row] = largest + std::log(share_a + share_b);
    for (std::size_t c = row * v_dim; c < (row + 1) * v_dim; ++c) {
      merged.out[c] = (share_a * a.out[c] + share_b * b.out[c]) / (share_a + share_b);
    }
  }
  return merged;
}

}  // namespace sightline::reference
