#include "sightline/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "logprobs.h"

namespace sightline {

namespace {

bool within(double x, double low, double high) { return x >= low && x <= high; }  // false for NaN

Result<TokenId> greedy(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return broken_logits(static_cast<std::int64_t>(i), logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (std::isinf(logits[best])) return broken_logits(static_cast<std::int64_t>(best), logits[best]);
  return static_cast<TokenId>(best);
}

}  // namespace

Result<void> validate(const SamplingOptions& o) {
  const auto refuse = [](const char* name, double got, const char* expected) {
    return fail(ErrorKind::kInvalidArgument, "sampling: {} = {}, expected {}", name, got, expected);
  };
  if (!within(o.temperature, 0, 100)) return refuse("temperature", o.temperature, "0 to 100");
  if (o.top_k < 0) return refuse("top_k", o.top_k, "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return refuse("top_p", o.top_p, "more than 0, at most 1");
  if (!within(o.min_p, 0, 1)) return refuse("min_p", o.min_p, "0 to 1");
  if (!(o.repetition_penalty > 0 && o.repetition_penalty <= 100)) {
    return refuse("repetition_penalty", o.repetition_penalty, "more than 0, at most 100");
  }
  if (o.penalty_last_n < -1) return refuse("penalty_last_n", o.penalty_last_n, "-1 (all) or more");
  return {};
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history) {
  if (options_.repetition_penalty != 1.0) {
    penalised_.assign(logits.begin(), logits.end());
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    const std::size_t n = options_.penalty_last_n < 0
                              ? history.size()
                              : std::min(history.size(), static_cast<std::size_t>(options_.penalty_last_n));
    const auto recent = history.last(n);
    for (const TokenId id : std::unordered_set<TokenId>(recent.begin(), recent.end())) {
      float& x = penalised_[static_cast<std::size_t>(id)];
      x = x > 0 ? x / penalty : x * penalty;
    }
    logits = penalised_;
  }
  SIGHTLINE_TRY(const TokenId best, greedy(logits));
  const double top = logits[static_cast<std::size_t>(best)];
  if (options_.temperature == 0.0) return best;

  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates_.push_back({logits[i], static_cast<TokenId>(i)});
  }
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (options_.top_k > 0 && static_cast<std::size_t>(options_.top_k) < candidates_.size()) {
    std::partial_sort(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), likelier);
    candidates_.resize(static_cast<std::size_t>(options_.top_k));
  } else {
    std::sort(candidates_.begin(), candidates_.end(), likelier);
  }
  // Probabilities before the temperature: what top-p and min-p look at.
  if (options_.top_p < 1.0) {
    double total = 0;
    for (const auto& c : candidates_) total += std::exp(c.logit - top);
    double kept = 0;
    std::size_t n = 0;
    while (n < candidates_.size() && kept < options_.top_p * total)
      kept += std::exp(candidates_[n++].logit - top);
    candidates_.resize(std::max<std::size_t>(n, 1));
  }
  if (options_.min_p > 0.0) {
    std::size_t n = 1;
    while (n < candidates_.size() && std::exp(candidates_[n].logit - top) >= options_.min_p) ++n;
    candidates_.resize(n);
  }
  double total = 0;
  for (const auto& c : candidates_) total += std::exp((c.logit - top) / options_.temperature);
  double left = rng_.next_uniform() * total;
  for (const auto& c : candidates_) {
    left -= std::exp((c.logit - top) / options_.temperature);
    if (left < 0) return c.id;
  }
  return candidates_.back().id;  // rounding of the sum
}

}  // namespace sightline
