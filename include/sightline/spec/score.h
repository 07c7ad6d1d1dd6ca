// From a dot product to a logit. Order fixed: scale, softcap, then bias and ALiBi, then visibility,
// then the softmax with the sink.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/spec/heads.h"

namespace sightline {

/// Dropout of attention weights, decided by a counter (base/rng.h uniform_at) and so replayed anywhere.
///
/// The counter holds seed, layer, query head, the query's segment and both positions, and no number of the
/// sequence: two sequences of a batch with equal segments and positions drop the same pairs. Where they must
/// differ, give them different segments (or a seed each).
struct DropoutSpec {
  double rate = 0.0;  ///< in [0, 1); a weight is kept when uniform_at(key) >= rate, then divided by 1 - rate
  std::uint64_t seed = 0;
  std::int64_t layer = 0;
  bool operator==(const DropoutSpec&) const = default;
};

struct ScoreSpec {
  /// Multiplies q . k. Unset: 1 / sqrt(qk_head_dim).
  std::optional<double> softmax_scale;
  /// c > 0: x becomes c * tanh(x / c), before bias. 0: off.
  double logit_softcap = 0.0;
  /// One per query head, or empty: adds slope * (k.pos - q.pos).
  std::vector<double> alibi_slopes;
  /// One learned logit per query head, or empty: joins the denominator, carries no value.
  std::vector<double> sink_logits;
  DropoutSpec dropout;

  bool operator==(const ScoreSpec&) const = default;
};

[[nodiscard]] inline double softmax_scale(const ScoreSpec& score, const HeadSpec& heads) {
  return score.softmax_scale ? *score.softmax_scale : 1.0 / std::sqrt(static_cast<double>(heads.qk_head_dim));
}

/// The logit of one visible pair before the softmax, from its dot product, its bias (0 when there is none)
/// and its distance k.pos - q.pos.
[[nodiscard]] inline double score_logit(const ScoreSpec& score, const HeadSpec& heads, int q_head, double dot,
                                        double bias, std::int64_t kv_minus_q_pos) {
  double x = dot * softmax_scale(score, heads);
  if (score.logit_softcap > 0) x = score.logit_softcap * std::tanh(x / score.logit_softcap);
  x += bias;
  if (!score.alibi_slopes.empty()) {
    x += score.alibi_slopes[static_cast<std::size_t>(q_head)] * static_cast<double>(kv_minus_q_pos);
  }
  return x;
}

/// Slopes of ALiBi for num_q_heads (arXiv:2108.12409): 2^(-8(h+1)/H) for a power of two, else the paper's
/// interleaving of the two neighbouring powers.
[[nodiscard]] std::vector<double> alibi_slopes(int num_q_heads);

/// Errors (kInvalidArgument): scale not finite, softcap negative or not finite, slopes or sinks whose count
/// is not num_q_heads, a slope that is not finite, a sink that is NaN or plus infinity, rate outside [0, 1).
[[nodiscard]] Result<void> validate(const ScoreSpec& score, const HeadSpec& heads);

}  // namespace sightline
