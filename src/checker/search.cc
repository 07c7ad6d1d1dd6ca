#include "checker/search.h"

#include <algorithm>
#include <cmath>

namespace sightline::checker {
namespace {

constexpr std::int64_t kMaxRows = 24;

// Rows that tell most: the first and last of each call, those around a window's end, and some between.
std::vector<std::int64_t> telling_rows(const Observation& o) {
  const std::int64_t q_len = o.q_len();
  std::vector<std::int64_t> rows;
  const auto add = [&](std::int64_t row) {
    if (row >= 0 && row < q_len) rows.push_back(row);
  };
  add(0);
  add(q_len - 1);
  for (const std::int64_t begin : o.call_begins) {
    add(begin - 1);
    add(begin);
    add(begin + 1);
  }
  for (const MaskNode& node : o.spec.mask.nodes) {
    if (node.op != MaskOp::kWindow && node.op != MaskOp::kChunk) continue;
    for (const std::int64_t d : {-1, 0, 1}) add(node.n + d - (o.kv_len() - q_len));
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  if (static_cast<std::int64_t>(rows.size()) > kMaxRows) rows.resize(static_cast<std::size_t>(kMaxRows));
  for (std::int64_t i = 0; i < kMaxRows && static_cast<std::int64_t>(rows.size()) < std::min(kMaxRows, q_len);
       ++i) {
    const std::int64_t row = i * q_len / kMaxRows;
    if (!std::ranges::binary_search(rows, row)) rows.insert(std::ranges::lower_bound(rows, row), row);
  }
  return rows;
}

bool better(const Score& a, const Score& b) { return a.mean_square < b.mean_square; }

}  // namespace

Searcher::Searcher(std::span<const Observation> observations) {
  for (const Observation& o : observations) {
    simulators_.emplace_back(o, telling_rows(o));
    // The spec was validated: what is declared can always be predicted.
    declared_.push_back(compare(simulators_.back(), *simulators_.back().predict({})));
  }
}

Score Searcher::score(std::span<const Fault> faults) const {
  Score score;
  for (std::size_t i = 0; i < simulators_.size(); ++i) {
    const Result<Prediction> prediction = simulators_[i].predict(faults);
    // What does not apply to an observation changes nothing of it.
    const Misfit misfit = prediction ? compare(simulators_[i], *prediction) : declared_[i];
    score.shows = score.shows || prediction.has_value();
    score.worst = std::max(score.worst, misfit.worst);
    score.mean_square += misfit.mean_square / static_cast<double>(simulators_.size());
    if (misfit.worst > kExcluded) ++score.num_excluding;
  }
  return score;
}

Candidate Searcher::best(const Hypothesis& hypothesis, std::span<const Fault> others) const {
  Candidate best;
  std::size_t best_idx = 0;
  const std::size_t num_values = std::max<std::size_t>(hypothesis.values.size(), 1);
  for (std::size_t i = 0; i < num_values; ++i) {
    std::vector<Fault> faults(others.begin(), others.end());
    faults.push_back(hypothesis.fault(hypothesis.values.empty() ? 0.0 : hypothesis.values[i]));
    const Score score = this->score(faults);
    if (!score.shows) continue;
    if (best.faults.empty() || better(score, best.score)) {
      best = {std::move(faults), score};
      best_idx = i;
    }
    if (score.worst <= kFits) break;  // values are in order of simplicity
  }
  if (best.faults.empty() || best.score.worst <= kFits || !hypothesis.is_continuous) return best;
  Candidate refined = refine(hypothesis, others, best_idx);
  return better(refined.score, best.score) ? refined : best;
}

// Golden section between the neighbours of the best value; then the roundest number that fits as well.
Candidate Searcher::refine(const Hypothesis& hypothesis, std::span<const Fault> others,
                           std::size_t best_idx) const {
  const double center = hypothesis.values[best_idx];
  double low = -INFINITY;
  double high = INFINITY;
  for (const double x : hypothesis.values) {
    if (x < center) low = std::max(low, x);
    if (x > center) high = std::min(high, x);
  }
  if (!std::isfinite(low)) low = hypothesis.is_logarithmic ? center / 2 : center - std::abs(center);
  if (!std::isfinite(high)) high = hypothesis.is_logarithmic ? center * 2 : center + std::abs(center);
  const auto to = [&](double x) { return hypothesis.is_logarithmic ? std::log(x) : x; };
  const auto from = [&](double x) { return hypothesis.is_logarithmic ? std::exp(x) : x; };
  const auto try_value = [&](double value) {
    std::vector<Fault> faults(others.begin(), others.end());
    faults.push_back(hypothesis.fault(value));
    const Score score = this->score(faults);
    return Candidate{std::move(faults), score};
  };
  constexpr double kGolden = 0.6180339887498949;
  constexpr int kSteps = 60;
  double a = to(low);
  double b = to(high);
  double x1 = b - kGolden * (b - a);
  double x2 = a + kGolden * (b - a);
  Candidate c1 = try_value(from(x1));
  Candidate c2 = try_value(from(x2));
  for (int i = 0; i < kSteps && std::abs(b - a) > 1e-9 * std::max(std::abs(a), std::abs(b)); ++i) {
    if (better(c1.score, c2.score)) {
      b = x2;
      x2 = x1;
      c2 = std::move(c1);
      x1 = b - kGolden * (b - a);
      c1 = try_value(from(x1));
    } else {
      a = x1;
      x1 = x2;
      c1 = std::move(c2);
      x2 = a + kGolden * (b - a);
      c2 = try_value(from(x2));
    }
  }
  Candidate best = better(c1.score, c2.score) ? c1 : c2;
  const double value = best.faults.back().values.front();
  for (const int digits : {1, 2, 3, 4, 5}) {
    if (value == 0) break;
    const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - digits + 1);
    Candidate round = try_value(std::round(value / unit) * unit);
    if (round.score.worst <= std::max(kFits, best.score.worst)) return round;
  }
  return best;
}

}  // namespace sightline::checker
