#include "attention/backward.h"

#include <cmath>
#include <limits>

#include "attention/sequence.h"
#include "sightline/base/rng.h"

namespace sightline::test {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <typename T>
GradientsOf<T> zeros(const Batch& b) {
  GradientsOf<T> to;
  to.d_q.assign(b.q.size(), T{0});
  to.d_k.assign(b.k.size(), T{0});
  to.d_v.assign(b.v.size(), T{0});
  to.d_bias.assign(b.bias.size(), T{0});
  to.d_alibi_slopes.assign(b.spec.score.alibi_slopes.size(), T{0});
  to.d_sink_logits.assign(b.spec.score.sink_logits.size(), T{0});
  return to;
}

double norm(const float* x, int size) {
  double sum = 0.0;
  for (int i = 0; i < size; ++i) sum += static_cast<double>(x[i]) * x[i];
  return std::sqrt(sum);
}

/// float64 gradients, and for each entry the sum of the magnitudes that its row is made of.
struct WideGradients {
  GradientsOf<double> ref, scale;
};

void add_oracle(const Batch& b, const Upstream& up, std::int64_t s, WideGradients& to) {
  const HeadSpec& heads = b.spec.heads;
  const auto [q0, q1, k0, k1] = range_of(b, s);
  const WideSequence wide(b, s);
  const std::int64_t n = k1 - k0;
  const std::vector<double> d_out(up.d_out.begin() + q0 * heads.num_q_heads * heads.v_head_dim,
                                  up.d_out.begin() + q1 * heads.num_q_heads * heads.v_head_dim);
  std::vector<double> d_lse;
  if (!up.d_lse.empty()) {
    d_lse.assign(up.d_lse.begin() + q0 * heads.num_q_heads, up.d_lse.begin() + q1 * heads.num_q_heads);
  }
  reference::AttentionUpstream upstream;
  upstream.d_out = dense_view<const double, 3>(d_out.data(), {q1 - q0, heads.num_q_heads, heads.v_head_dim});
  if (!d_lse.empty())
    upstream.d_lse = dense_view<const double, 2>(d_lse.data(), {q1 - q0, heads.num_q_heads});
  const auto got = reference::attention_backward(b.spec, wide.inputs, upstream);
  const auto forward = reference::attention_forward(b.spec, wide.inputs, {.weights = true});
  if (!got || !forward) {
    ADD_FAILURE() << (got ? forward.error().message : got.error().message);
    return;
  }
  std::copy(got->d_q.begin(), got->d_q.end(),
            to.ref.d_q.begin() + q0 * heads.num_q_heads * heads.qk_head_dim);
  std::copy(got->d_k.begin(), got->d_k.end(),
            to.ref.d_k.begin() + k0 * heads.num_kv_heads * heads.qk_head_dim);
  std::copy(got->d_v.begin(), got->d_v.end(),
            to.ref.d_v.begin() + k0 * heads.num_kv_heads * heads.v_head_dim);
  for (std::size_t h = 0; h < to.ref.d_alibi_slopes.size(); ++h) {
    to.ref.d_alibi_slopes[h] += got->d_alibi_slopes[h];
  }
  for (std::size_t h = 0; h < to.ref.d_sink_logits.size(); ++h) {
    to.ref.d_sink_logits[h] += got->d_sink_logits[h];
  }
  const double softmax = std::abs(softmax_scale(b.spec.score, heads));
  const auto add_all = [](std::vector<double>& values, std::int64_t row, int width, double x) {
    for (int c = 0; c < width; ++c) values[at(row * width + c)] += x;
  };
  for (std::int64_t i = q0; i < q1; ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const int g = kv_head_for(heads, h);
      const std::int64_t q_row = i * heads.num_q_heads + h;
      const float* grad = up.d_out.data() + q_row * heads.v_head_dim;
      const double size = norm(grad, heads.v_head_dim);
      double row = up.d_lse.empty() ? 0.0 : std::abs(up.d_lse[at(q_row)]);
      for (int c = 0; c < heads.v_head_dim; ++c) {
        row +=
            std::abs(grad[c] * forward->out[at(((i - q0) * heads.num_q_heads + h) * heads.v_head_dim + c)]);
      }
      if (!to.scale.d_sink_logits.empty()) to.scale.d_sink_logits[at(h)] += row;
      for (std::int64_t j = k0; j < k1; ++j) {
        const std::int64_t pair = (h * (q1 - q0) + i - q0) * n + j - k0;
        const double p = forward->weights[at(pair)];
        const std::int64_t kv_row = j * heads.num_kv_heads + g;
        const double d_score =
            p * (size * norm(b.v.data() + kv_row * heads.v_head_dim, heads.v_head_dim) + row);
        if (!b.bias.empty()) {
          const std::int64_t cell = (h * b.num_q() + i) * b.max_kv() + j - k0;
          to.ref.d_bias[at(cell)] = got->d_bias[at(pair)];
          to.scale.d_bias[at(cell)] = d_score;
        }
        if (d_score == 0.0) continue;
        add_all(to.scale.d_q, q_row, heads.qk_head_dim,
                softmax * d_score * norm(b.k.data() + kv_row * heads.qk_head_dim, heads.qk_head_dim));
        add_all(to.scale.d_k, kv_row, heads.qk_head_dim,
                softmax * d_score * norm(b.q.data() + q_row * heads.qk_head_dim, heads.qk_head_dim));
        add_all(to.scale.d_v, kv_row, heads.v_head_dim, p * size);
        if (!to.scale.d_alibi_slopes.empty()) {
          to.scale.d_alibi_slopes[at(h)] +=
              d_score * static_cast<double>(std::abs(b.kv_coords[at(j)].pos - b.q_coords[at(i)].pos));
        }
      }
    }
  }
}

void add_plain(const Batch& b, const Upstream& up, std::int64_t s, Gradients& to) {
  const HeadSpec& heads = b.spec.heads;
  const auto [q0, q1, k0, k1] = range_of(b, s);
  const PlainSequence sequence(b, s);
  const auto scale = static_cast<float>(softmax_scale(b.spec.score, heads));
  const int dims = heads.qk_head_dim;
  std::vector<std::vector<float>> d_keys(at((k1 - k0) * heads.num_kv_heads), std::vector<float>(at(dims)));
  for (std::int64_t i = q0; i < q1; ++i) {
    for (int h = 0; h < heads.num_q_heads; ++h) {
      const int g = kv_head_for(heads, h);
      const std::int64_t q_row = i * heads.num_q_heads + h;
      const PlainRow row = sequence.row(i, h);
      const float* d_out = up.d_out.data() + q_row * heads.v_head_dim;
      float delta = up.d_lse.empty() ? 0.0F : -up.d_lse[at(q_row)];
      for (int c = 0; c < heads.v_head_dim; ++c) delta += d_out[c] * row.out[at(c)];
      std::vector<float> d_q(at(dims), 0.0F);
      for (std::size_t n = 0; n < row.seen.size(); ++n) {
        const std::int64_t j = row.seen[n];
        const std::int64_t kv_row = j * heads.num_kv_heads + g;
        const float p = row.p[n] / row.sum;
        float d_p = 0.0F;
        for (int c = 0; c < heads.v_head_dim; ++c) {
          d_p += d_out[c] * b.v[at(kv_row * heads.v_head_dim + c)];
          to.d_v[at(kv_row * heads.v_head_dim + c)] += p * row.kept[n] * d_out[c];
        }
        float d_score = p * (d_p * row.kept[n] - delta);
        if (!b.bias.empty()) to.d_bias[at((h * b.num_q() + i) * b.max_kv() + j - k0)] = d_score;
        if (!to.d_alibi_slopes.empty()) {
          to.d_alibi_slopes[at(h)] +=
              d_score * static_cast<float>(b.kv_coords[at(j)].pos - b.q_coords[at(i)].pos);
        }
        d_score *= row.cap_slope[n] * scale;
        for (int c = 0; c < dims; ++c) {
          d_q[at(c)] += d_score * sequence.key(j, g)[at(c)];
          d_keys[at((j - k0) * heads.num_kv_heads + g)][at(c)] += d_score * row.q[at(c)];
        }
      }
      d_q =
          rotate(b.spec.rope, d_q, b.q_rope_pos.empty() ? b.q_coords[at(i)].pos : b.q_rope_pos[at(i)], -1.0F);
      std::copy(d_q.begin(), d_q.end(), to.d_q.begin() + q_row * dims);
      if (!to.d_sink_logits.empty()) {
        const float weight = std::exp(static_cast<float>(b.spec.score.sink_logits[at(h)]) - row.lse());
        to.d_sink_logits[at(h)] -= weight * (row.seen.empty() ? -up.d_lse[at(q_row)] : delta);
      }
    }
  }
  for (std::int64_t j = k0; j < k1; ++j) {
    for (int g = 0; g < heads.num_kv_heads; ++g) {
      const auto d_k = rotate(b.spec.rope, d_keys[at((j - k0) * heads.num_kv_heads + g)],
                              b.kv_rope_pos.empty() ? b.kv_coords[at(j)].pos : b.kv_rope_pos[at(j)], -1.0F);
      std::copy(d_k.begin(), d_k.end(), to.d_k.begin() + (j * heads.num_kv_heads + g) * dims);
    }
  }
}

}  // namespace

Upstream random_upstream(const Batch& b, std::uint64_t seed) {
  Rng rng(seed);
  Upstream up;
  const HeadSpec& heads = b.spec.heads;
  for (std::int64_t i = 0; i < b.num_q() * heads.num_q_heads * heads.v_head_dim; ++i) {
    up.d_out.push_back(static_cast<float>(rng.next_normal()));
  }
  for (std::int64_t i = 0; i < b.num_q() * heads.num_q_heads; ++i) {
    up.d_lse.push_back(static_cast<float>(rng.next_normal()));
  }
  return up;
}

namespace {

Result<void> call_backward(const Batch& b, const Upstream& up, const RunOptions& options,
                           const ChangeArrays& change, BackwardRun& run) {
  const HeadSpec& heads = b.spec.heads;
  const Output forward = run_contiguous(b, options);
  ThreadPool pool(options.num_threads);
  AttentionContext context(pool, options.table);
  const QueryBatch queries{b.q_offsets, b.q_coords, b.q_rope_pos};
  ContiguousKv kv;
  kv.kv_offsets = b.kv_offsets;
  kv.coords = b.kv_coords;
  kv.rope_pos = b.kv_rope_pos;
  kv.ordinals = b.ordinals;
  const std::array<std::int64_t, 3> k_shape{b.num_kv(), heads.num_kv_heads, heads.qk_head_dim};
  const std::array<std::int64_t, 3> v_shape{b.num_kv(), heads.num_kv_heads, heads.v_head_dim};
  const std::array<std::int64_t, 3> q_shape{b.num_q(), heads.num_q_heads, heads.qk_head_dim};
  const std::array<std::int64_t, 3> out_shape{b.num_q(), heads.num_q_heads, heads.v_head_dim};
  const std::array<std::int64_t, 3> bias_shape{heads.num_q_heads, b.num_q(), b.max_kv()};
  kv.k = dense_view<const float, 3>(b.k.data(), k_shape);
  kv.v = dense_view<const float, 3>(b.v.data(), v_shape);
  AttentionExtras extras;
  extras.tables = b.tables;
  if (!b.bias.empty()) extras.bias = dense_view<const float, 3>(b.bias.data(), bias_shape);
  AttentionUpstream upstream;
  upstream.q = dense_view<const float, 3>(b.q.data(), q_shape);
  upstream.out = dense_view<const float, 3>(forward.out.data(), out_shape);
  upstream.lse = dense_view<const float, 2>(forward.lse.data(), {b.num_q(), heads.num_q_heads});
  upstream.d_out = dense_view<const float, 3>(up.d_out.data(), out_shape);
  if (!up.d_lse.empty()) {
    upstream.d_lse = dense_view<const float, 2>(up.d_lse.data(), {b.num_q(), heads.num_q_heads});
  }
  Gradients& to = run.gradients;
  to = zeros<float>(b);
  for (auto* values : {&to.d_q, &to.d_k, &to.d_v, &to.d_bias, &to.d_alibi_slopes, &to.d_sink_logits}) {
    std::fill(values->begin(), values->end(), std::numeric_limits<float>::quiet_NaN());
  }
  AttentionGradients gradients;
  gradients.d_q = dense_view<float, 3>(to.d_q.data(), q_shape);
  gradients.d_k = dense_view<float, 3>(to.d_k.data(), k_shape);
  gradients.d_v = dense_view<float, 3>(to.d_v.data(), v_shape);
  if (!b.bias.empty()) gradients.d_bias = dense_view<float, 3>(to.d_bias.data(), bias_shape);
  gradients.d_alibi_slopes = to.d_alibi_slopes;
  gradients.d_sink_logits = to.d_sink_logits;
  if (change) change(upstream, gradients);
  SIGHTLINE_TRY(const AttentionPlan plan, plan_attention(b.spec, queries, kv, extras));
  SIGHTLINE_CHECK(attention_backward(b.spec, plan, upstream, queries, kv, extras, gradients, context));
  run.stats = context.stats();
  return {};
}

}  // namespace

BackwardRun run_backward(const Batch& b, const Upstream& up, const RunOptions& options,
                         const ChangeArrays& change) {
  BackwardRun run;
  const auto done = call_backward(b, up, options, change, run);
  if (!done) run.error = done.error().message;
  return run;
}

::testing::AssertionResult within_gradient_rule(const Batch& b, const Upstream& up, const Gradients& got) {
  WideGradients wide{zeros<double>(b), zeros<double>(b)};
  Gradients plain = zeros<float>(b);
  for (std::int64_t s = 0; s < b.num_sequences(); ++s) {
    add_oracle(b, up, s, wide);
    add_plain(b, up, s, plain);
  }
  if (auto ok = rule("d_q", 3.0, got.d_q, plain.d_q, wide.ref.d_q, wide.scale.d_q); !ok) return ok;
  if (auto ok = rule("d_k", 3.0, got.d_k, plain.d_k, wide.ref.d_k, wide.scale.d_k); !ok) return ok;
  if (auto ok = rule("d_v", 3.0, got.d_v, plain.d_v, wide.ref.d_v, wide.scale.d_v); !ok) return ok;
  if (auto ok = rule("d_bias", 3.0, got.d_bias, plain.d_bias, wide.ref.d_bias, wide.scale.d_bias); !ok)
    return ok;
  if (auto ok = rule("d_alibi_slopes", 3.0, got.d_alibi_slopes, plain.d_alibi_slopes, wide.ref.d_alibi_slopes,
                     wide.scale.d_alibi_slopes);
      !ok) {
    return ok;
  }
  return rule("d_sink_logits", 3.0, got.d_sink_logits, plain.d_sink_logits, wide.ref.d_sink_logits,
              wide.scale.d_sink_logits);
}

::testing::AssertionResult same_bits(const Gradients& a, const Gradients& b) {
  if (auto ok = same_bits(a.d_q, b.d_q); !ok) return ok << " (d_q)";
  if (auto ok = same_bits(a.d_k, b.d_k); !ok) return ok << " (d_k)";
  if (auto ok = same_bits(a.d_v, b.d_v); !ok) return ok << " (d_v)";
  if (auto ok = same_bits(a.d_bias, b.d_bias); !ok) return ok << " (d_bias)";
  if (auto ok = same_bits(a.d_alibi_slopes, b.d_alibi_slopes); !ok) return ok << " (d_alibi_slopes)";
  if (auto ok = same_bits(a.d_sink_logits, b.d_sink_logits); !ok) return ok << " (d_sink_logits)";
  return ::testing::AssertionSuccess();
}

}  // namespace sightline::test
