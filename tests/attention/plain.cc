// The plain method in f32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/sequence.h"
#include "sightline/base/rng.h"

namespace sightline::test {

namespace {
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
}  // namespace

SequenceRange range_of(const Batch& b, std::int64_t s) {
  return {b.q_offsets[at(s)], b.q_offsets[at(s) + 1], b.kv_offsets[at(s)], b.kv_offsets[at(s) + 1]};
}

MaskTables tables_of(const Batch& b, std::int64_t s) {
  if (b.tables.empty()) return {};
  return b.tables.size() == 1 ? b.tables.front() : b.tables[at(s)];
}

std::vector<float> rotate(const RopeSpec& rope, std::vector<float> head, std::int64_t pos, float direction) {
  const auto frequencies = rope_frequencies(rope, 0);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const RopePair pair = rope_pair(rope, static_cast<int>(i));
    const double angle = static_cast<double>(pos) * frequencies[i];
    const auto c = static_cast<float>(rope.cos_sin_magnitude * std::cos(angle));
    const auto s = direction * static_cast<float>(rope.cos_sin_magnitude * std::sin(angle));
    const float x = head[at(pair.first)];
    const float y = head[at(pair.second)];
    head[at(pair.first)] = x * c - y * s;
    head[at(pair.second)] = x * s + y * c;
  }
  return head;
}

float PlainRow::lse() const { return seen.empty() ? max : max + std::log(sum); }

PlainSequence::PlainSequence(const Batch& b, std::int64_t s)
    : batch_(b), range_(range_of(b, s)), tables_(tables_of(b, s)) {
  const HeadSpec& heads = b.spec.heads;
  for (std::int64_t j = range_.k0; j < range_.k1; ++j) {
    for (int g = 0; g < heads.num_kv_heads; ++g) {
      const float* k = b.k.data() + (j * heads.num_kv_heads + g) * heads.qk_head_dim;
      keys_.push_back(rotate(b.spec.rope, {k, k + heads.qk_head_dim},
                             b.kv_rope_pos.empty() ? b.kv_coords[at(j)].pos : b.kv_rope_pos[at(j)]));
    }
  }
}

const std::vector<float>& PlainSequence::key(std::int64_t j, int kv_head) const {
  return keys_[at((j - range_.k0) * batch_.spec.heads.num_kv_heads + kv_head)];
}

PlainRow PlainSequence::row(std::int64_t i, int h) const {
  const Batch& b = batch_;
  const HeadSpec& heads = b.spec.heads;
  const ScoreSpec& score = b.spec.score;
  const ReachBack reach = reach_back(b.spec.mask);
  const bool in_cache =
      b.spec.rope.pairing != RopePairing::kNone && b.spec.rope.position_policy == PositionPolicy::kInCache;
  const auto scale = static_cast<float>(softmax_scale(score, heads));
  const TokenCoord& qc = b.q_coords[at(i)];
  const float* q = b.q.data() + (i * heads.num_q_heads + h) * heads.qk_head_dim;
  const std::vector<float> raw(q, q + heads.qk_head_dim);
  const std::int64_t pos = b.q_rope_pos.empty() ? qc.pos : b.q_rope_pos[at(i)];
  PlainRow row;
  row.q = rotate(b.spec.rope, raw, pos);
  const auto as_first = rotate(
      b.spec.rope, raw, in_cache_rope_pos(pos, qc.pos - qc.segment_start, reach.num_first + reach.window));
  row.max = score.sink_logits.empty() ? -std::numeric_limits<float>::infinity()
                                      : static_cast<float>(score.sink_logits[at(h)]);
  for (std::int64_t j = range_.k0; j < range_.k1; ++j) {
    const TokenCoord& kc = b.kv_coords[at(j)];
    if (!is_visible(b.spec.mask, tables_, {qc, i - range_.q0}, {kc, j - range_.k0})) continue;
    const float bias = b.bias.empty() ? 0.0F : b.bias[at((h * b.num_q() + i) * b.max_kv() + j - range_.k0)];
    if (std::isinf(bias) && bias < 0) continue;
    const auto& left = in_cache && kc.pos - kc.segment_start < reach.num_first ? as_first : row.q;
    const auto& right = key(j, kv_head_for(heads, h));
    float x = 0.0F;
    for (int c = 0; c < heads.qk_head_dim; ++c) x += left[at(c)] * right[at(c)];
    x *= scale;
    const auto cap = static_cast<float>(score.logit_softcap);
    float slope = 1.0F;
    if (cap > 0.0F) {
      const float t = std::tanh(x / cap);
      slope = 1.0F - t * t;
      x = cap * t;
    }
    x += bias;
    if (!score.alibi_slopes.empty()) {
      x += static_cast<float>(score.alibi_slopes[at(h)]) * static_cast<float>(kc.pos - qc.pos);
    }
    float kept = 1.0F;
    if (score.dropout.rate > 0.0) {
      const auto& d = score.dropout;
      const float u = uniform_at({d.seed, d.layer, h, qc.segment, qc.pos, kc.pos});
      kept = static_cast<double>(u) >= d.rate ? 1.0F / static_cast<float>(1.0 - d.rate) : 0.0F;
    }
    row.seen.push_back(j);
    row.logits.push_back(x);
    row.cap_slope.push_back(slope);
    row.kept.push_back(kept);
    row.max = std::max(row.max, x);
  }
  // Where logits are only scaled, the kernels' maximum lies up to two powers of two above the largest;
  // so does this one. At the largest itself the weight of an only key would be exactly 1, and no error
  // would be left to compare with. Of other logits the kernels take the largest, and so does this.
  const bool modifies =
      score.logit_softcap > 0 || !b.bias.empty() || !score.alibi_slopes.empty() || scale <= 0.0F;
  if (!modifies && std::isfinite(row.max) && !row.seen.empty()) {
    const double even = 2.0 * std::ceil(row.max * std::numbers::log2e / 2.0);
    row.max = std::max(row.max, static_cast<float>(even * std::numbers::ln2));
  }
  row.out.assign(at(heads.v_head_dim), 0.0F);
  for (std::size_t n = 0; n < row.seen.size(); ++n) {
    row.p.push_back(std::exp(row.logits[n] - row.max));
    row.sum += row.p[n];
    const float used = row.p[n] * row.kept[n];
    const float* v =
        b.v.data() + (row.seen[n] * heads.num_kv_heads + kv_head_for(heads, h)) * heads.v_head_dim;
    for (int c = 0; c < heads.v_head_dim; ++c) row.out[at(c)] += used * v[c];
  }
  if (!score.sink_logits.empty()) row.sum += std::exp(static_cast<float>(score.sink_logits[at(h)]) - row.max);
  for (float& x : row.out) x = row.seen.empty() ? 0.0F : x / row.sum;
  return row;
}

Output plain(const Batch& b) {
  Output result;
  for (std::int64_t s = 0; s < b.num_sequences(); ++s) {
    const PlainSequence sequence(b, s);
    for (std::int64_t i = range_of(b, s).q0; i < range_of(b, s).q1; ++i) {
      for (int h = 0; h < b.spec.heads.num_q_heads; ++h) {
        const PlainRow row = sequence.row(i, h);
        result.out.insert(result.out.end(), row.out.begin(), row.out.end());
        result.lse.push_back(row.lse());
      }
    }
  }
  return result;
}

}  // namespace sightline::test
