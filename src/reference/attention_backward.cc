#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_call.h"
#include "sightline/reference/attention.h"
#include "sightline/reference/misread.h"
#include "softmax_row.h"

namespace sightline::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// One backward pass: the call, what comes from above and what is summed.
class Backward {
 public:
  Backward(const AttentionCall& call, const AttentionUpstream& upstream) : call_(call), up_(upstream) {
    allocate();
  }

  AttentionGradients run();

 private:
  void allocate();
  void add_nan_row(int h, std::int64_t i);
  void add_row(int h, std::int64_t i, const SoftmaxRow& row, const std::vector<bool>& visible);
  void add_pair(int h, std::int64_t i, std::int64_t j, const PairScore& pair, double d_logit);
  double d_out_dot_v(int h, std::int64_t i, std::int64_t j) const;
  double* d_rotated_q(std::int64_t i, int h, bool as_first);
  double kv_share(int h) const;
  std::vector<double> row_terms() const;

  const AttentionCall& call_;
  const AttentionUpstream& up_;
  AttentionGradients grads_;
  std::vector<double> d_rotated_q_, d_rotated_q_as_first_, d_rotated_k_;
  std::vector<double> misread_terms_;  // empty: each row has its own
};

void Backward::allocate() {
  const AttentionCall& c = call_;
  grads_.d_q.resize(at(c.q_len() * c.num_q_heads() * c.qk_dim()), 0.0);
  grads_.d_k.resize(at(c.kv_len() * c.num_kv_heads() * c.qk_dim()), 0.0);
  grads_.d_v.resize(at(c.kv_len() * c.num_kv_heads() * c.v_dim()), 0.0);
  d_rotated_q_ = d_rotated_q_as_first_ = grads_.d_q;
  d_rotated_k_ = grads_.d_k;
  if (c.has_bias() && c.in().bias.size() > 0) {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < 3; ++d) last += (c.in().bias.shape[d] - 1) * c.in().bias.strides[d];
    grads_.d_bias.resize(at(last + 1), 0.0);
  }
  if (!c.spec().score.alibi_slopes.empty()) grads_.d_alibi_slopes.resize(at(c.num_q_heads()), 0.0);
  if (c.has_sink()) grads_.d_sink_logits.resize(at(c.num_q_heads()), 0.0);
}

double Backward::d_out_dot_v(int h, std::int64_t i, std::int64_t j) const {
  double sum = 0;
  for (int c = 0; c < call_.v_dim(); ++c) sum += up_.d_out(i, h, c) * call_.in().v(j, call_.kv_head(h), c);
  return sum;
}

double* Backward::d_rotated_q(std::int64_t i, int h, bool as_first) {
  auto& d_q = as_first ? d_rotated_q_as_first_ : d_rotated_q_;
  return d_q.data() + (i * call_.num_q_heads() + h) * call_.qk_dim();
}

/// What of query head h reaches its key head: all of it, unless the deviation says otherwise.
double Backward::kv_share(int h) const {
  const int group_size = call_.spec().heads.group_size();
  switch (call_.deviation().gqa_reduction) {
    case GqaReduction::kSum:
      return 1;
    case GqaReduction::kMean:
      return 1.0 / group_size;
    case GqaReduction::kLastHead:
      return h % group_size == group_size - 1 ? 1 : 0;
    case GqaReduction::kFirstHead:
      return h % group_size == 0 ? 1 : 0;
    case GqaReduction::kTiled:
      return 1;
  }
  return 1;
}

/// The gradient of one logit, on to q, k, bias and slope.
void Backward::add_pair(int h, std::int64_t i, std::int64_t j, const PairScore& pair, double d_logit) {
  if (!grads_.d_bias.empty()) {
    const auto& strides = call_.in().bias.strides;
    grads_.d_bias[at(call_.bias_head(h) * strides[0] + i * strides[1] + j * strides[2])] += d_logit;
  }
  if (!grads_.d_alibi_slopes.empty()) {
    grads_.d_alibi_slopes[at(h)] +=
        d_logit * static_cast<double>(call_.in().kv_coords[at(j)].pos - call_.in().q_coords[at(i)].pos);
  }
  const double slope = call_.deviation().omit_softcap_gradient
                           ? softmax_scale(call_.spec().score, call_.spec().heads)
                           : pair.d_logit_d_dot;
  const double d_dot = d_logit * slope;
  const int g = call_.kv_head(h);
  const double* q = call_.rotated_q(i, h, j);
  const double* k = call_.rotated_k(j, g);
  double* d_q = d_rotated_q(i, h, call_.meets_as_first(j));
  double* d_k = d_rotated_k_.data() + (j * call_.num_kv_heads() + call_.gradient_kv_head(h)) * call_.qk_dim();
  for (int c = 0; c < call_.qk_dim(); ++c) {
    d_q[c] += d_dot * k[c];
    d_k[c] += kv_share(h) * d_dot * q[c];
  }
}

/// A row of 0/0: its weights are NaN at every key, hidden or not, and so is what they reach.
void Backward::add_nan_row(int h, std::int64_t i) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const int g = call_.kv_head(h);
  std::fill_n(d_rotated_q(i, h, false), call_.qk_dim(), kNan);
  for (std::int64_t j = 0; j < call_.kv_len(); ++j) {
    const std::int64_t key = j * call_.num_kv_heads() + g;
    std::fill_n(d_rotated_k_.begin() + key * call_.qk_dim(), call_.qk_dim(), kNan);
    std::fill_n(grads_.d_v.begin() + key * call_.v_dim(), call_.v_dim(), kNan);
  }
}

void Backward::add_row(int h, std::int64_t i, const SoftmaxRow& forward_row,
                       const std::vector<bool>& visible) {
  const Deviation& deviation = call_.deviation();
  const double d_lse = up_.d_lse.data == nullptr ? 0.0 : up_.d_lse(i, h);
  if (forward_row.is_empty) {
    // Only the lse of such a row depends on anything: it is the sink logit.
    if (call_.has_sink() && !deviation.omit_sink_gradient) grads_.d_sink_logits[at(h)] += d_lse;
    if (deviation.empty_row_is_nan) add_nan_row(h, i);
    return;
  }
  const double kept = deviation.omit_row_term ? 0 : 1;
  std::vector<double> p(at(call_.kv_len()), 0.0), keep(p), d_p(p);
  std::vector<PairScore> pairs(at(call_.kv_len()));
  double d_out_dot_out = 0;  // rowsum(dO * O), FlashAttention-2, arXiv:2307.08691, eq. 4
  for (std::int64_t j = 0; j < call_.kv_len(); ++j) {
    PairScore& pair = pairs[at(j)];
    pair = call_.pair_score(h, i, j, visible[at(j)]);
    if (forward_row.pairs[at(j)].counts) {
      const double weight = forward_row.weights[at(j)] * call_.keep_factor(h, i, j);
      d_out_dot_out += weight * d_out_dot_v(h, i, j);
    }
    if (!pair.counts) continue;
    p[at(j)] = std::exp(pair.logit - forward_row.lse);
    keep[at(j)] = call_.keep_factor(h, i, j, deviation.backward_dropout_seed_offset);
    d_p[at(j)] = keep[at(j)] * d_out_dot_v(h, i, j);
  }
  if (!misread_terms_.empty()) d_out_dot_out = misread_terms_[at(h * call_.q_len() + i)];
  for (std::int64_t j = 0; j < call_.kv_len(); ++j) {
    const PairScore& pair = pairs[at(j)];
    if (!pair.counts) continue;
    double* d_v = &grads_.d_v[at((j * call_.num_kv_heads() + call_.gradient_kv_head(h)) * call_.v_dim())];
    for (int c = 0; c < call_.v_dim(); ++c)
      d_v[c] += kv_share(h) * p[at(j)] * keep[at(j)] * up_.d_out(i, h, c);
    // dS = P * (dP - rowsum(dO * O) + d_lse)
    if (pair.from_dot) add_pair(h, i, j, pair, p[at(j)] * (d_p[at(j)] - kept * d_out_dot_out + d_lse));
  }
  if (call_.has_sink() && !deviation.omit_sink_gradient) {
    grads_.d_sink_logits[at(h)] += forward_row.sink_weight * (d_lse - kept * d_out_dot_out);
  }
}

// The row term of each query row and head, [rows, heads] in memory.
std::vector<double> Backward::row_terms() const {
  std::vector<double> terms;
  for (std::int64_t i = 0; i < call_.q_len(); ++i) {
    const std::vector<bool> visible = call_.visible_keys(call_.spec().mask, i);
    for (int h = 0; h < call_.num_q_heads(); ++h) {
      const SoftmaxRow row = softmax_row(call_, h, i, visible);
      double sum = 0;
      for (std::int64_t j = 0; j < call_.kv_len(); ++j) {
        if (row.pairs[at(j)].counts) {
          sum += row.weights[at(j)] * call_.keep_factor(h, i, j) * d_out_dot_v(h, i, j);
        }
      }
      terms.push_back(sum);
    }
  }
  return terms;
}

AttentionGradients Backward::run() {
  if (call_.deviation().row_term_misread) misread_terms_ = row_terms();
  const MaskSpec& forward_mask = call_.spec().mask;
  const MaskSpec& backward_mask = call_.deviation().backward_mask.value_or(forward_mask);
  for (std::int64_t i = 0; i < call_.q_len(); ++i) {
    const std::vector<bool> forward_visible = call_.visible_keys(forward_mask, i);
    const std::vector<bool> backward_visible = call_.visible_keys(backward_mask, i);
    for (int h = 0; h < call_.num_q_heads(); ++h) {
      add_row(h, i, softmax_row(call_, h, i, forward_visible), backward_visible);
    }
  }
  for (std::int64_t i = 0; i < call_.q_len(); ++i) {
    for (int h = 0; h < call_.num_q_heads(); ++h) {
      const std::span<double> usual(d_rotated_q(i, h, false), at(call_.qk_dim()));
      const std::span<double> as_first(d_rotated_q(i, h, true), at(call_.qk_dim()));
      call_.unrotate_d_q(i, false, usual);
      call_.unrotate_d_q(i, true, as_first);
      double* d_q = &grads_.d_q[at((i * call_.num_q_heads() + h) * call_.qk_dim())];
      for (int c = 0; c < call_.qk_dim(); ++c) d_q[c] = usual[at(c)] + as_first[at(c)];
    }
  }
  for (std::int64_t j = 0; j < call_.kv_len(); ++j) {
    for (int g = 0; g < call_.num_kv_heads(); ++g) {
      const auto offset = at((j * call_.num_kv_heads() + g) * call_.qk_dim());
      call_.unrotate_d_k(j, std::span(d_rotated_k_).subspan(offset, at(call_.qk_dim())));
    }
  }
  grads_.d_k = std::move(d_rotated_k_);
  return std::move(grads_);
}

/// The upstream of an output that is read in another layout, in the layout it was written in.
std::vector<double> as_written(OutLayout layout, const HeadSpec& heads,
                               const StridedView<const double, 3>& d_out) {
  std::vector<double> written(at(d_out.size()));
  for (std::int64_t i = 0; i < d_out.shape[0]; ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const OutSource from = out_source(layout, d_out.shape[0], heads.num_q_heads, {i, h});
      for (int c = 0; c < heads.v_head_dim; ++c) {
        written[at((from.row * heads.num_q_heads + from.head) * heads.v_head_dim + c)] = d_out(i, h, c);
      }
    }
  }
  return written;
}

void fill_tail(std::vector<double>& rows, std::size_t num_rows, std::size_t num_filled, double value) {
  if (num_rows == 0) return;
  const auto count = rows.size() / num_rows * std::min(num_filled, num_rows);
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(count), rows.end(), value);
}

std::size_t num_tail_pads(std::span<const TokenCoord> coords) {
  std::size_t count = 0;
  while (count < coords.size() && !coords[coords.size() - 1 - count].valid) ++count;
  return count;
}

void deviate_gradients(const AttentionInputs& in, const Deviation& deviation, AttentionGradients& grads) {
  const bool scores = deviation.severed_scores;
  if (scores || deviation.severed_d_q) std::ranges::fill(grads.d_q, 0.0);
  if (scores || deviation.severed_d_k) std::ranges::fill(grads.d_k, 0.0);
  if (deviation.severed_d_v) std::ranges::fill(grads.d_v, 0.0);
  if (scores) {
    for (auto* d : {&grads.d_bias, &grads.d_alibi_slopes, &grads.d_sink_logits}) std::ranges::fill(*d, 0.0);
  }
  const auto fill = [&](std::size_t num_q, std::size_t num_kv, double value) {
    fill_tail(grads.d_q, in.q_coords.size(), num_q, value);
    fill_tail(grads.d_k, in.kv_coords.size(), num_kv, value);
    fill_tail(grads.d_v, in.kv_coords.size(), num_kv, value);
  };
  const auto num_rows = at(deviation.num_unwritten_rows);
  if (num_rows > 0) fill(num_rows, num_rows, std::numeric_limits<double>::quiet_NaN());
  if (deviation.padding_unwritten) fill(num_tail_pads(in.q_coords), num_tail_pads(in.kv_coords), kLeftover);
}

}  // namespace

Result<AttentionGradients> attention_backward(const AttentionSpec& spec, const AttentionInputs& inputs,
                                              const AttentionUpstream& upstream, const Deviation& deviation) {
  // What is of the forward alone leaves the backward right.
  Deviation of_backward = deviation;
  of_backward.parts_merged_in_base_2 = false;
  SIGHTLINE_TRY(const AttentionCall call,
                AttentionCall::make(spec, inputs, of_backward, "attention_backward"));
  const std::array<std::int64_t, 3> out_shape{call.q_len(), call.num_q_heads(), call.v_dim()};
  const std::array<std::int64_t, 2> lse_shape{call.q_len(), call.num_q_heads()};
  if (upstream.d_out.shape != out_shape) {
    return fail(ErrorKind::kInvalidArgument, "attention_backward: d_out has shape [{}], expected [{}]",
                fmt::join(upstream.d_out.shape, ", "), fmt::join(out_shape, ", "));
  }
  if (upstream.d_lse.data != nullptr && upstream.d_lse.shape != lse_shape) {
    return fail(ErrorKind::kInvalidArgument, "attention_backward: d_lse has shape [{}], expected [{}]",
                fmt::join(upstream.d_lse.shape, ", "), fmt::join(lse_shape, ", "));
  }
  const std::vector<double> d_out = as_written(deviation.out_layout, spec.heads, upstream.d_out);
  const AttentionUpstream up{dense_view<const double, 3>(d_out.data(), out_shape), upstream.d_lse};
  AttentionGradients grads;
  if (misreads_inputs(deviation)) {
    SIGHTLINE_TRY(const MisreadInputs misread, MisreadInputs::make(spec, inputs, deviation));
    SIGHTLINE_TRY(const AttentionCall read,
                  AttentionCall::make(spec, misread.get(), of_backward, "attention_backward"));
    grads = Backward(read, up).run();
    misread.take_back(grads);
  } else {
    grads = Backward(call, up).run();
  }
  deviate_gradients(inputs, deviation, grads);
  return grads;
}

}  // namespace sightline::reference
