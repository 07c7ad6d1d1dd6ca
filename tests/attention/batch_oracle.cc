// The float64 oracle and the plain f32 method on a batch, and the error rule between the three.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/batch.h"
#include "sightline/base/rng.h"
#include "sightline/reference/attention.h"

namespace sightline::test {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

template <typename T>
std::vector<T> part(const std::vector<T>& from, std::int64_t begin, std::int64_t end) {
  if (from.empty()) return {};
  return {from.begin() + begin, from.begin() + end};
}

struct SequenceRange {
  std::int64_t q0, q1, k0, k1;
};

SequenceRange range_of(const Batch& b, std::int64_t s) {
  return {b.q_offsets[at(s)], b.q_offsets[at(s) + 1], b.kv_offsets[at(s)], b.kv_offsets[at(s) + 1]};
}

MaskTables tables_of(const Batch& b, std::int64_t s) {
  if (b.tables.empty()) return {};
  return b.tables.size() == 1 ? b.tables.front() : b.tables[at(s)];
}

}  // namespace

Wide oracle(const Batch& b) {
  Wide result;
  const HeadSpec& heads = b.spec.heads;
  for (std::int64_t s = 0; s < b.num_sequences(); ++s) {
    const auto [q0, q1, k0, k1] = range_of(b, s);
    const auto widen = [](const std::vector<float>& from, std::int64_t begin, std::int64_t end) {
      return std::vector<double>(from.begin() + begin, from.begin() + end);
    };
    const auto q =
        widen(b.q, q0 * heads.num_q_heads * heads.qk_head_dim, q1 * heads.num_q_heads * heads.qk_head_dim);
    const auto k =
        widen(b.k, k0 * heads.num_kv_heads * heads.qk_head_dim, k1 * heads.num_kv_heads * heads.qk_head_dim);
    const auto v =
        widen(b.v, k0 * heads.num_kv_heads * heads.v_head_dim, k1 * heads.num_kv_heads * heads.v_head_dim);
    const auto q_rope = part(b.q_rope_pos, q0, q1);
    const auto kv_rope = part(b.kv_rope_pos, k0, k1);
    reference::AttentionInputs in;
    in.q = dense_view<const double, 3>(q.data(), {q1 - q0, heads.num_q_heads, heads.qk_head_dim});
    in.k = dense_view<const double, 3>(k.data(), {k1 - k0, heads.num_kv_heads, heads.qk_head_dim});
    in.v = dense_view<const double, 3>(v.data(), {k1 - k0, heads.num_kv_heads, heads.v_head_dim});
    in.q_coords = std::span(b.q_coords).subspan(at(q0), at(q1 - q0));
    in.kv_coords = std::span(b.kv_coords).subspan(at(k0), at(k1 - k0));
    in.q_rope_pos = q_rope;
    in.kv_rope_pos = kv_rope;
    in.tables = tables_of(b, s);
    std::vector<double> bias;
    if (!b.bias.empty()) {
      for (int h = 0; h < heads.num_q_heads; ++h) {
        for (std::int64_t i = q0; i < q1; ++i) {
          const float* row = b.bias.data() + (h * b.num_q() + i) * b.max_kv();
          bias.insert(bias.end(), row, row + (k1 - k0));
        }
      }
      in.bias = dense_view<const double, 3>(bias.data(), {heads.num_q_heads, q1 - q0, k1 - k0});
    }
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

Output plain(const Batch& b) {
  Output result;
  const HeadSpec& heads = b.spec.heads;
  const ScoreSpec& score = b.spec.score;
  const auto frequencies = rope_frequencies(b.spec.rope, 0);
  const ReachBack reach = reach_back(b.spec.mask);
  const bool in_cache =
      b.spec.rope.pairing != RopePairing::kNone && b.spec.rope.position_policy == PositionPolicy::kInCache;
  const auto rotate = [&](std::vector<float> head, std::int64_t pos) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const RopePair pair = rope_pair(b.spec.rope, static_cast<int>(i));
      const double angle = static_cast<double>(pos) * frequencies[i];
      const auto c = static_cast<float>(b.spec.rope.cos_sin_magnitude * std::cos(angle));
      const auto s = static_cast<float>(b.spec.rope.cos_sin_magnitude * std::sin(angle));
      const float x = head[at(pair.first)];
      const float y = head[at(pair.second)];
      head[at(pair.first)] = x * c - y * s;
      head[at(pair.second)] = x * s + y * c;
    }
    return head;
  };
  const auto scale = static_cast<float>(softmax_scale(score, heads));
  for (std::int64_t s = 0; s < b.num_sequences(); ++s) {
    const auto [q0, q1, k0, k1] = range_of(b, s);
    const MaskTables tables = tables_of(b, s);
    std::vector<std::vector<float>> keys;
    for (std::int64_t j = k0; j < k1; ++j) {
      for (int g = 0; g < heads.num_kv_heads; ++g) {
        const float* k = b.k.data() + (j * heads.num_kv_heads + g) * heads.qk_head_dim;
        keys.push_back(rotate({k, k + heads.qk_head_dim},
                              b.kv_rope_pos.empty() ? b.kv_coords[at(j)].pos : b.kv_rope_pos[at(j)]));
      }
    }
    for (std::int64_t i = q0; i < q1; ++i) {
      const TokenCoord& qc = b.q_coords[at(i)];
      for (int h = 0; h < heads.num_q_heads; ++h) {
        const float* q = b.q.data() + (i * heads.num_q_heads + h) * heads.qk_head_dim;
        const std::vector<float> raw(q, q + heads.qk_head_dim);
        const std::int64_t pos = b.q_rope_pos.empty() ? qc.pos : b.q_rope_pos[at(i)];
        const auto rotated = rotate(raw, pos);
        const auto as_first =
            rotate(raw, in_cache_rope_pos(pos, qc.pos - qc.segment_start, reach.num_first + reach.window));
        std::vector<float> logits;
        std::vector<std::int64_t> seen;
        float max = score.sink_logits.empty() ? -std::numeric_limits<float>::infinity()
                                              : static_cast<float>(score.sink_logits[at(h)]);
        for (std::int64_t j = k0; j < k1; ++j) {
          const TokenCoord& kc = b.kv_coords[at(j)];
          if (!is_visible(b.spec.mask, tables, {qc, i - q0}, {kc, j - k0})) continue;
          const float bias = b.bias.empty() ? 0.0F : b.bias[at((h * b.num_q() + i) * b.max_kv() + j - k0)];
          if (std::isinf(bias) && bias < 0) continue;
          const bool first = in_cache && kc.pos - kc.segment_start < reach.num_first;
          const auto& left = first ? as_first : rotated;
          const auto& key = keys[at((j - k0) * heads.num_kv_heads + kv_head_for(heads, h))];
          float x = 0.0F;
          for (int c = 0; c < heads.qk_head_dim; ++c) x += left[at(c)] * key[at(c)];
          x *= scale;
          const auto cap = static_cast<float>(score.logit_softcap);
          if (cap > 0.0F) x = cap * std::tanh(x / cap);
          x += bias;
          if (!score.alibi_slopes.empty()) {
            x += static_cast<float>(score.alibi_slopes[at(h)]) * static_cast<float>(kc.pos - qc.pos);
          }
          logits.push_back(x);
          seen.push_back(j);
          max = std::max(max, x);
        }
        // Where logits are only scaled, the kernels' maximum lies up to two powers of two above the largest;
        // so does this one. At the largest itself the weight of an only key would be exactly 1, and no error
        // would be left to compare with. Of other logits the kernels take the largest, and so does this.
        const bool modifies =
            score.logit_softcap > 0 || !b.bias.empty() || !score.alibi_slopes.empty() || scale <= 0.0F;
        if (!modifies && std::isfinite(max) && !seen.empty()) {
          const double even = 2.0 * std::ceil(max * std::numbers::log2e / 2.0);
          max = std::max(max, static_cast<float>(even * std::numbers::ln2));
        }
        float sum = 0.0F;
        std::vector<float> out(at(heads.v_head_dim), 0.0F);
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const float p = std::exp(logits[n] - max);
          sum += p;
          float used = p;
          if (score.dropout.rate > 0.0) {
            const auto& d = score.dropout;
            const float u =
                uniform_at({d.seed, d.layer, h, qc.segment, qc.pos, b.kv_coords[at(seen[n])].pos});
            used = static_cast<double>(u) >= d.rate ? p / static_cast<float>(1.0 - d.rate) : 0.0F;
          }
          const float* v =
              b.v.data() + (seen[n] * heads.num_kv_heads + kv_head_for(heads, h)) * heads.v_head_dim;
          for (int c = 0; c < heads.v_head_dim; ++c) out[at(c)] += used * v[c];
        }
        if (!score.sink_logits.empty()) sum += std::exp(static_cast<float>(score.sink_logits[at(h)]) - max);
        for (float& x : out) x = seen.empty() ? 0.0F : x / sum;
        result.out.insert(result.out.end(), out.begin(), out.end());
        result.lse.push_back(seen.empty() ? max : max + std::log(sum));
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

::testing::AssertionResult rule(const char* what, const std::vector<float>& got,
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
  if (ours.error <= 2.0 * theirs.error + atol) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << what << ": scaled error " << ours.error << " at entry " << ours.entry << " (got "
         << got[ours.entry] << ", expected " << ref[ours.entry] << "), plain method " << theirs.error
         << ", atol " << atol;
}

}  // namespace

::testing::AssertionResult within_error_rule(const Batch& batch, const Output& got) {
  const Wide ref = oracle(batch);
  const Output simple = plain(batch);
  if (auto ok = rule("out", got.out, simple.out, ref.out, ref.scale); !ok) return ok;
  std::vector<double> lse_scale;
  for (const double x : ref.lse) lse_scale.push_back(1.0 + std::abs(x));
  return rule("lse", got.lse, simple.lse, ref.lse, lse_scale);
}

}  // namespace sightline::test
