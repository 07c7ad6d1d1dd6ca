#include "bench/backward_case.h"

#include <algorithm>
#include <cmath>

#include "bench/checked_error.h"
#include "bench/draw.h"
#include "sightline/reference/attention.h"

namespace sightline::bench {

namespace {

constexpr std::int64_t kSampledRows = 6;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<std::int64_t> sampled_rows(std::int64_t num_q) {
  std::vector<std::int64_t> rows;
  const std::int64_t count = std::min(kSampledRows, num_q);
  for (std::int64_t n = 0; n < count; ++n)
    rows.push_back(n * (num_q - 1) / std::max<std::int64_t>(count - 1, 1));
  return rows;
}

/// Gradients of the sampled rows, in the number type of the method: d_q of these rows, d_k and d_v of all
/// keys.
template <typename T>
struct Gradients {
  std::vector<T> d_q, d_k, d_v;
};

// The plain method in f32, one row and head after the other.
Gradients<float> plain_gradients(const AttentionSpec& spec, const CaseViews& in,
                                 const std::vector<float>& d_out, const std::vector<std::int64_t>& rows) {
  const HeadSpec& heads = spec.heads;
  const int dim = heads.qk_head_dim;
  const int v_dim = heads.v_head_dim;
  const std::int64_t num_kv = in.kv.k.shape[0];
  Gradients<float> out;
  out.d_q.assign(rows.size() * at(heads.num_q_heads * dim), 0.0F);
  out.d_k.assign(at(in.kv.k.size()), 0.0F);
  out.d_v.assign(at(in.kv.v.size()), 0.0F);
  const auto scale = static_cast<float>(softmax_scale(spec.score, heads));
  std::vector<float> p(at(num_kv));
  std::vector<float> d_p(at(num_kv));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const TokenRef query{in.queries.coords[at(rows[r])], rows[r]};
    std::vector<std::int64_t> seen;
    for (std::int64_t j = 0; j < num_kv; ++j) {
      if (is_visible(spec.mask, in.tables, query, {in.kv.coords[at(j)], j})) seen.push_back(j);
    }
    for (int head = 0; head < heads.num_q_heads && !seen.empty(); ++head) {
      const int group = kv_head_for(heads, head);
      const float* q = &in.q(rows[r], head, 0);
      const float* d_row = d_out.data() + (rows[r] * heads.num_q_heads + head) * v_dim;
      float max = -HUGE_VALF;
      for (const std::int64_t j : seen) {
        float x = 0.0F;
        for (int i = 0; i < dim; ++i) x += q[i] * in.kv.k(j, group, i);
        p[at(j)] = x * scale;
        max = std::max(max, p[at(j)]);
      }
      float sum = 0.0F;
      for (const std::int64_t j : seen) sum += p[at(j)] = std::exp(p[at(j)] - max);
      std::vector<float> o(at(v_dim), 0.0F);
      for (const std::int64_t j : seen) {
        p[at(j)] /= sum;
        for (int i = 0; i < v_dim; ++i) o[at(i)] += p[at(j)] * in.kv.v(j, group, i);
        float x = 0.0F;
        for (int i = 0; i < v_dim; ++i) x += d_row[i] * in.kv.v(j, group, i);
        d_p[at(j)] = x;
      }
      float share = 0.0F;  // rowsum(dO * O), as FlashAttention-2 has it
      for (int i = 0; i < v_dim; ++i) share += d_row[i] * o[at(i)];
      float* d_q = out.d_q.data() + (static_cast<std::int64_t>(r) * heads.num_q_heads + head) * dim;
      for (const std::int64_t j : seen) {
        const float d_s = p[at(j)] * (d_p[at(j)] - share) * scale;
        const std::int64_t key = j * heads.num_kv_heads + group;
        for (int i = 0; i < dim; ++i) d_q[i] += d_s * in.kv.k(j, group, i);
        for (int i = 0; i < dim; ++i) out.d_k[at(key * dim + i)] += d_s * q[i];
        for (int i = 0; i < v_dim; ++i) out.d_v[at(key * v_dim + i)] += p[at(j)] * d_row[i];
      }
    }
  }
  return out;
}

double norm(const float* x, int size) {
  double sum = 0.0;
  for (int i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

/// float64 gradients, and for each row of d_q [row, query head], d_k and d_v [key, key head] the sum of the
/// magnitudes that it is made of.
struct Oracle {
  Gradients<double> gradients, scales;
};

// Adds what one sampled row and head brings to the scales; `weights` of this row and head.
void add_scales(const AttentionSpec& spec, const CaseViews& in, std::int64_t q_row, int head,
                const float* d_row, const double* out_row, const double* weights, double& d_q_scale,
                Gradients<double>& scales) {
  const HeadSpec& heads = spec.heads;
  const int group = kv_head_for(heads, head);
  const double softmax = softmax_scale(spec.score, heads);
  const double size = norm(d_row, heads.v_head_dim);
  const double q_size = norm(&in.q(q_row, head, 0), heads.qk_head_dim);
  double share = 0.0;
  for (int i = 0; i < heads.v_head_dim; ++i) share += std::abs(static_cast<double>(d_row[i]) * out_row[i]);
  for (std::int64_t j = 0; j < in.kv.k.shape[0]; ++j) {
    if (weights[j] == 0.0) continue;
    const double d_score =
        softmax * weights[j] * (size * norm(&in.kv.v(j, group, 0), heads.v_head_dim) + share);
    const std::size_t key = at(j * heads.num_kv_heads + group);
    d_q_scale += d_score * norm(&in.kv.k(j, group, 0), heads.qk_head_dim);
    scales.d_k[key] += d_score * q_size;
    scales.d_v[key] += weights[j] * size;
  }
}

Result<Oracle> ask_oracle(const AttentionSpec& spec, const CaseViews& in, const std::vector<float>& d_out,
                          const std::vector<std::int64_t>& rows) {
  const HeadSpec& heads = spec.heads;
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t num_kv = in.kv.k.shape[0];
  std::vector<double> q;
  std::vector<double> d;
  std::vector<TokenCoord> coords;
  for (const std::int64_t row : rows) {
    const float* q_row = &in.q(row, 0, 0);
    const float* d_row = d_out.data() + row * heads.num_q_heads * heads.v_head_dim;
    q.insert(q.end(), q_row, q_row + heads.num_q_heads * heads.qk_head_dim);
    d.insert(d.end(), d_row, d_row + heads.num_q_heads * heads.v_head_dim);
    coords.push_back(in.queries.coords[at(row)]);
  }
  const std::vector<double> k(in.kv.k.data, in.kv.k.data + in.kv.k.size());
  const std::vector<double> v(in.kv.v.data, in.kv.v.data + in.kv.v.size());
  reference::AttentionInputs inputs;
  inputs.q = dense_view<const double, 3>(q.data(), {count, heads.num_q_heads, heads.qk_head_dim});
  inputs.k = dense_view<const double, 3>(k.data(), in.kv.k.shape);
  inputs.v = dense_view<const double, 3>(v.data(), in.kv.v.shape);
  inputs.q_coords = coords;
  inputs.kv_coords = in.kv.coords;
  reference::AttentionUpstream upstream;
  upstream.d_out = dense_view<const double, 3>(d.data(), {count, heads.num_q_heads, heads.v_head_dim});
  SIGHTLINE_TRY(reference::AttentionGradients found, reference::attention_backward(spec, inputs, upstream));
  SIGHTLINE_TRY(const reference::AttentionOutputs forward,
                reference::attention_forward(spec, inputs, {.weights = true}));
  Oracle oracle;
  oracle.gradients = {std::move(found.d_q), std::move(found.d_k), std::move(found.d_v)};
  oracle.scales.d_q.assign(at(count * heads.num_q_heads), 0.0);
  oracle.scales.d_k.assign(at(num_kv * heads.num_kv_heads), 0.0);
  oracle.scales.d_v.assign(at(num_kv * heads.num_kv_heads), 0.0);
  for (std::int64_t r = 0; r < count; ++r) {
    for (int head = 0; head < heads.num_q_heads; ++head) {
      const std::int64_t entry = r * heads.num_q_heads + head;
      const std::int64_t out_at = entry * heads.v_head_dim;
      add_scales(spec, in, rows[at(r)], head,
                 d_out.data() + (rows[at(r)] * heads.num_q_heads + head) * heads.v_head_dim,
                 forward.out.data() + out_at, forward.weights.data() + (head * count + r) * num_kv,
                 oracle.scales.d_q[at(entry)], oracle.scales);
    }
  }
  return oracle;
}

// One array; each row of it has one scale.
CheckedError error_of(const std::vector<float>& ours, const std::vector<float>& plain,
                      const std::vector<double>& expected, const std::vector<double>& row_scales) {
  CheckedError error;
  const std::size_t width = expected.size() / row_scales.size();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error.add(ours[i], plain[i], expected[i], row_scales[i / width]);
  }
  return error;
}

}  // namespace

Result<std::unique_ptr<BackwardBody>> BackwardBody::make(const Bench& bench, AttentionCase c) {
  SIGHTLINE_TRY(std::unique_ptr<AttentionBody> forward, AttentionBody::make(bench, std::move(c)));
  std::unique_ptr<BackwardBody> body(new BackwardBody(bench, std::move(forward)));
  const CaseViews in = body->forward_->views();
  const AttentionSpec& spec = body->forward_->get_case().spec;
  const std::int64_t num_q = in.q.shape[0];
  body->lse_.resize(at(num_q * spec.heads.num_q_heads));
  SIGHTLINE_CHECK(attention_forward(spec, *in.plan, in.q, in.queries, in.kv, *in.extras, in.out,
                                    dense_view<float, 2>(body->lse_.data(), {num_q, spec.heads.num_q_heads}),
                                    body->forward_->context()));
  Rng rng(3);
  body->d_out_ = normals(in.out.size(), rng);
  body->d_q_.resize(at(in.q.size()));
  body->d_k_.resize(at(in.kv.k.size()));
  body->d_v_.resize(at(in.kv.v.size()));
  SIGHTLINE_CHECK(body->backward(body->d_out_));
  return body;
}

Result<void> BackwardBody::backward(const std::vector<float>& d_out) {
  const CaseViews in = forward_->views();
  const AttentionSpec& spec = forward_->get_case().spec;
  AttentionUpstream upstream;
  upstream.q = in.q;
  upstream.out = in.out;
  upstream.lse = dense_view<const float, 2>(lse_.data(), {in.q.shape[0], spec.heads.num_q_heads});
  upstream.d_out = dense_view<const float, 3>(d_out.data(), in.out.shape);
  AttentionGradients gradients;
  gradients.d_q = dense_view<float, 3>(d_q_.data(), in.q.shape);
  gradients.d_k = dense_view<float, 3>(d_k_.data(), in.kv.k.shape);
  gradients.d_v = dense_view<float, 3>(d_v_.data(), in.kv.v.shape);
  return attention_backward(spec, *in.plan, upstream, in.queries, in.kv, *in.extras, gradients, context_);
}

void BackwardBody::run() { static_cast<void>(backward(d_out_)); }

double BackwardBody::work() const {
  const HeadSpec& heads = forward_->get_case().spec.heads;
  return static_cast<double>(forward_->pairs_visible()) * (6.0 * heads.qk_head_dim + 4.0 * heads.v_head_dim);
}

double BackwardBody::memory_ratio() const {
  return static_cast<double>(context_.scratch_bytes()) /
         static_cast<double>(sizeof(float) * (d_q_.size() + d_k_.size() + d_v_.size()));
}

Result<std::string> BackwardBody::check() {
  const CaseViews in = forward_->views();
  const AttentionSpec& spec = forward_->get_case().spec;
  const std::vector<std::int64_t> rows = sampled_rows(in.q.shape[0]);
  const std::int64_t width = in.out.shape[1] * in.out.shape[2];
  std::vector<float> d_out(d_out_.size(), 0.0F);
  for (const std::int64_t row : rows)
    std::copy_n(d_out_.begin() + row * width, width, d_out.begin() + row * width);
  SIGHTLINE_CHECK(backward(d_out));
  SIGHTLINE_TRY(const Oracle oracle, ask_oracle(spec, in, d_out, rows));
  const Gradients<float> plain = plain_gradients(spec, in, d_out, rows);
  std::vector<float> d_q_rows;
  const std::int64_t q_width = in.q.shape[1] * in.q.shape[2];
  for (const std::int64_t row : rows) {
    d_q_rows.insert(d_q_rows.end(), d_q_.begin() + row * q_width, d_q_.begin() + (row + 1) * q_width);
  }
  CheckedError worst;
  const CheckedError parts[] = {error_of(d_q_rows, plain.d_q, oracle.gradients.d_q, oracle.scales.d_q),
                                error_of(d_k_, plain.d_k, oracle.gradients.d_k, oracle.scales.d_k),
                                error_of(d_v_, plain.d_v, oracle.gradients.d_v, oracle.scales.d_v)};
  for (const CheckedError& part : parts) {
    if (!part.holds(3.0)) {
      return fail(ErrorKind::kInternal,
                  "bench: {}: scaled error of gradients {} against the oracle, plain method {}",
                  forward_->get_case().name, part.ours, part.plain);
    }
    worst = {std::max(worst.ours, part.ours), std::max(worst.plain, part.plain), 0.0};
  }
  return worst.note();
}

Result<Row> checked_row(BackwardBody& body, Limit limit, std::string_view more) {
  Row row;
  row.name = body.forward().get_case().name;
  row.what = fmt::format("backward; {}", body.forward().what());
  if (!more.empty()) row.what += fmt::format("; {}", more);
  row.limit = limit;
  SIGHTLINE_TRY(row.note, body.check());
  return row;
}

Result<void> run_backward_case(const Bench& bench, const AttentionCase& c) {
  SIGHTLINE_TRY(const std::unique_ptr<BackwardBody> body, BackwardBody::make(bench, c));
  SIGHTLINE_TRY(Row row, checked_row(*body, Limit::kPeak));
  row.work = body->work();
  measure(bench, row, [&] { body->run(); });
  return {};
}

}  // namespace sightline::bench
