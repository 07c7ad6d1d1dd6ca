#include "sightline/spec/score.h"

#include <bit>
#include <cmath>

namespace sightline {

namespace {

// 2^(-8(h+1)/H) for H a power of two: arXiv:2108.12409, section 3.
double slope(int head, int num_heads) { return std::exp2(-8.0 * (head + 1) / num_heads); }

}  // namespace

std::vector<double> alibi_slopes(int num_q_heads) {
  std::vector<double> out;
  if (num_q_heads < 1) return out;
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(num_q_heads)));
  for (int h = 0; h < power; ++h) out.push_back(slope(h, power));
  // The rest: every other slope of the next power, as the paper's code does.
  for (int h = 0; static_cast<int>(out.size()) < num_q_heads; h += 2) out.push_back(slope(h, 2 * power));
  return out;
}

Result<void> validate(const ScoreSpec& score, const HeadSpec& heads) {
  if (score.softmax_scale && !std::isfinite(*score.softmax_scale)) {
    return fail(ErrorKind::kInvalidArgument, "score: softmax_scale = {}, expected finite",
                *score.softmax_scale);
  }
  if (!std::isfinite(score.logit_softcap) || score.logit_softcap < 0.0) {
    return fail(ErrorKind::kInvalidArgument,
                "score: logit_softcap = {}, expected 0 (off) or finite and positive", score.logit_softcap);
  }
  const auto num_heads = static_cast<std::size_t>(heads.num_q_heads);
  if (!score.alibi_slopes.empty() && score.alibi_slopes.size() != num_heads) {
    return fail(ErrorKind::kInvalidArgument, "score: alibi_slopes has {} entries, expected num_q_heads = {}",
                score.alibi_slopes.size(), num_heads);
  }
  for (std::size_t i = 0; i < score.alibi_slopes.size(); ++i) {
    if (!std::isfinite(score.alibi_slopes[i])) {
      return fail(ErrorKind::kInvalidArgument, "score: alibi_slopes[{}] = {}, expected finite", i,
                  score.alibi_slopes[i]);
    }
  }
  if (!score.sink_logits.empty() && score.sink_logits.size() != num_heads) {
    return fail(ErrorKind::kInvalidArgument, "score: sink_logits has {} entries, expected num_q_heads = {}",
                score.sink_logits.size(), num_heads);
  }
  for (std::size_t i = 0; i < score.sink_logits.size(); ++i) {
    if (std::isnan(score.sink_logits[i]) || score.sink_logits[i] == INFINITY) {
      return fail(ErrorKind::kInvalidArgument,
                  "score: sink_logits[{}] = {}, expected finite or minus infinity", i, score.sink_logits[i]);
    }
  }
  if (!(score.dropout.rate >= 0.0 && score.dropout.rate < 1.0)) {
    return fail(ErrorKind::kInvalidArgument, "score: dropout.rate = {}, expected 0 or more and below 1",
                score.dropout.rate);
  }
  return {};
}

}  // namespace sightline
