// The float64 oracle on a batch, and the error rule between it, the plain f32 method and the engine.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/sequence.h"

namespace sightline::test {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

WideSequence::WideSequence(const Batch& b, std::int64_t s) {
  const HeadSpec& heads = b.spec.heads;
  const auto [q0, q1, k0, k1] = range_of(b, s);
  const auto widen = [](const std::vector<float>& from, std::int64_t begin, std::int64_t end, int width) {
    return std::vector<double>(from.begin() + begin * width, from.begin() + end * width);
  };
  q = widen(b.q, q0, q1, heads.num_q_heads * heads.qk_head_dim);
  k = widen(b.k, k0, k1, heads.num_kv_heads * heads.qk_head_dim);
  v = widen(b.v, k0, k1, heads.num_kv_heads * heads.v_head_dim);
  if (!b.q_rope_pos.empty()) q_rope_pos = {b.q_rope_pos.begin() + q0, b.q_rope_pos.begin() + q1};
  if (!b.kv_rope_pos.empty()) kv_rope_pos = {b.kv_rope_pos.begin() + k0, b.kv_rope_pos.begin() + k1};
  inputs.q = dense_view<const double, 3>(q.data(), {q1 - q0, heads.num_q_heads, heads.qk_head_dim});
  inputs.k = dense_view<const double, 3>(k.data(), {k1 - k0, heads.num_kv_heads, heads.qk_head_dim});
  inputs.v = dense_view<const double, 3>(v.data(), {k1 - k0, heads.num_kv_heads, heads.v_head_dim});
  inputs.q_coords = std::span(b.q_coords).subspan(at(q0), at(q1 - q0));
  inputs.kv_coords = std::span(b.kv_coords).subspan(at(k0), at(k1 - k0));
  inputs.q_rope_pos = q_rope_pos;
  inputs.kv_rope_pos = kv_rope_pos;
  inputs.tables = tables_of(b, s);
  if (b.bias.empty()) return;
  for (int h = 0; h < heads.num_q_heads; ++h) {
    for (std::int64_t i = q0; i < q1; ++i) {
      const float* row = b.bias.data() + (h * b.num_q() + i) * b.max_kv();
      bias.insert(bias.end(), row, row + (k1 - k0));
    }
  }
  inputs.bias = dense_view<const double, 3>(bias.data(), {heads.num_q_heads, q1 - q0, k1 - k0});
}

Wide oracle(const Batch& b) {
  Wide result;
  const HeadSpec& heads = b.spec.heads;
  for (std::int64_t s = 0; s < b.num_sequences(); ++s) {
    const WideSequence wide(b, s);
    const reference::AttentionInputs& in = wide.inputs;
    const auto [q0, q1, k0, k1] = range_of(b, s);
    auto out = reference::attention_forward(b.spec, in, {.weights = true});
    if (!out) {
      ADD_FAILURE() << out.error().message;
      return result;
    }
    result.out.insert(result.out.end(), out->out.begin(), out->out.end());
    result.lse.insert(result.lse.end(), out->lse.begin(), out->lse.end());
    for (std::int64_t i = 0; i < q1 - q0; ++i) {
      for (int h = 0; h < heads.num_q_heads; ++h) {
        for (int c = 0; c < heads.v_head_dim; ++c) {
          double sum = 0.0;
          for (std::int64_t j = 0; j < k1 - k0; ++j) {
            const double w = out->dropped_weights[at((h * (q1 - q0) + i) * (k1 - k0) + j)];
            if (w != 0.0) sum += w * std::abs(in.v(j, kv_head_for(heads, h), c));
          }
          result.scale.push_back(sum);
        }
      }
    }
  }
  return result;
}

namespace {

// Largest error over its scale; infinities must agree and NaN stands for failure.
struct Worst {
  double error = 0.0;
  std::size_t entry = 0;
};

Worst worst_error(const std::vector<float>& got, const std::vector<double>& ref,
                  const std::vector<double>& scale) {
  Worst worst;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    if (std::isinf(ref[i]) && static_cast<double>(got[i]) == ref[i]) continue;
    double error = std::abs(static_cast<double>(got[i]) - ref[i]);
    if (error != 0.0) error /= scale[i];
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    if (error > worst.error) worst = {error, i};
  }
  return worst;
}

}  // namespace

::testing::AssertionResult rule(const char* what, double factor, const std::vector<float>& got,
                                const std::vector<float>& plain, const std::vector<double>& ref,
                                const std::vector<double>& scale) {
  if (got.size() != ref.size() || plain.size() != ref.size()) {
    return ::testing::AssertionFailure()
           << what << ": sizes " << got.size() << ", " << plain.size() << ", " << ref.size();
  }
  double atol = 0.0;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    if (!std::isfinite(ref[i]) || scale[i] == 0.0) continue;
    const auto x = static_cast<float>(ref[i] / scale[i]);
    const float rounded = (x + 0.3F) - 0.3F;
    atol = std::max(atol, 2.0 * std::abs(static_cast<double>(rounded) - ref[i] / scale[i]));
  }
  const Worst ours = worst_error(got, ref, scale);
  const Worst theirs = worst_error(plain, ref, scale);
  if (ours.error <= factor * theirs.error + atol) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << what << ": scaled error " << ours.error << " at entry " << ours.entry << " (got "
         << got[ours.entry] << ", expected " << ref[ours.entry] << "), plain method " << theirs.error
         << ", atol " << atol;
}

::testing::AssertionResult within_error_rule(const Batch& batch, const Output& got) {
  const Wide ref = oracle(batch);
  const Output simple = plain(batch);
  if (auto ok = rule("out", 2.0, got.out, simple.out, ref.out, ref.scale); !ok) return ok;
  std::vector<double> lse_scale;
  for (const double x : ref.lse) lse_scale.push_back(1.0 + std::abs(x));
  return rule("lse", 2.0, got.lse, simple.lse, ref.lse, lse_scale);
}

}  // namespace sightline::test
