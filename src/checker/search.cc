#include "checker/search.h"

#include <algorithm>
#include <cmath>

#include "sightline/base/golden_section.h"

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

// Every row, or as many at equal distances as a few seconds allow.
std::vector<std::int64_t> many_rows(const Observation& o) {
  const std::int64_t step = row_step(o);
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < o.q_len(); row += step) rows.push_back(row);
  return rows;
}

// Rows, at most kMaxRows, that the declared meaning misses although it explains `told`; none are looked for
// where it does not, or where gradients alone were observed.
std::vector<std::int64_t> missed_rows(const Observation& o, const Simulator& told, const Misfit& declared) {
  std::vector<std::int64_t> rows;
  if (declared.worst > kFits || static_cast<std::int64_t>(told.rows().size()) == o.q_len()) return rows;
  const Simulator many(o, many_rows(o), false);
  const Misfit misfit = compare(many, *many.predict({}));
  for (std::size_t i = 0; i < misfit.worst_of_row.size(); ++i) {
    if (misfit.worst_of_row[i] > kFits && std::ssize(rows) < kMaxRows) rows.push_back(many.rows()[i]);
  }
  return rows;
}

bool is_text(const Simulator& simulator, std::size_t row_idx) {
  const auto row = static_cast<std::size_t>(simulator.rows()[row_idx]);
  return simulator.observation().q_coords[row].valid;
}

// How far the declared meaning misses the rows that are no padding. Padding that is answered says nothing of
// most numbers.
double worst_of_text(const Simulator& simulator, const Misfit& declared) {
  double worst = 0;
  for (std::size_t i = 0; i < declared.worst_of_row.size(); ++i) {
    if (is_text(simulator, i)) worst = std::max(worst, declared.worst_of_row[i]);
  }
  return worst;
}

// Few rows for a first look: of those that the declared meaning misses the worst and the last (or the first,
// where they are one) and one of padding; where it misses none (the gradients differ), the first and the
// last.
std::vector<std::int64_t> scout_rows(const Simulator& simulator, const Misfit& declared) {
  const std::vector<double>& worst = declared.worst_of_row;
  const double least = worst_of_text(simulator, declared) > kExcluded ? kExcluded : kFits;
  std::vector<std::size_t> missed;
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < worst.size(); ++i) {
    if (worst[i] <= least) continue;
    if (is_text(simulator, i)) {
      missed.push_back(i);
    } else if (rows.empty()) {
      rows.push_back(simulator.rows()[i]);
    }
  }
  if (missed.empty()) {
    if (!rows.empty()) return rows;
    rows = {simulator.rows().front()};
    if (simulator.rows().size() > 1) rows.push_back(simulator.rows().back());
    return rows;
  }
  const std::size_t most = *std::ranges::max_element(missed, {}, [&](std::size_t i) { return worst[i]; });
  for (const std::size_t i : {most, most == missed.back() ? missed.front() : missed.back()}) {
    rows.push_back(simulator.rows()[i]);
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

void add(const Misfit& misfit, bool shows, std::size_t num_observations, Score& to) {
  to.shows = to.shows || shows;
  to.worst = std::max(to.worst, misfit.worst);
  to.mean_square += misfit.mean_square / static_cast<double>(num_observations);
  if (misfit.worst > kExcluded) ++to.num_excluding;
}

// The first, middle and last head, and the one that differs first.
std::vector<int> scout_heads(const Observation& o, const Misfit& declared) {
  const int num_heads = o.spec.heads.num_q_heads;
  std::vector<int> heads{0, num_heads / 2, num_heads - 1};
  if (declared.first && declared.first->tensor.front() != 'd') {
    const bool heads_first = declared.first->tensor == "weights";
    heads.push_back(static_cast<int>(declared.first->index[heads_first ? 0 : 1]));
  }
  std::ranges::sort(heads);
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

bool has_forward(const Observation& o) { return !o.out.empty() || !o.lse.empty() || !o.weights.empty(); }

bool better(const Score& a, const Score& b) { return a.mean_square < b.mean_square; }

}  // namespace

std::int64_t row_step(const Observation& o) {
  constexpr double kMostProducts = 4e9;
  const HeadSpec& heads = o.spec.heads;
  const double products = 1.0 * static_cast<double>(o.q_len()) * static_cast<double>(o.kv_len()) *
                          heads.num_q_heads * (heads.qk_head_dim + heads.v_head_dim);
  return static_cast<std::int64_t>(std::ceil(std::max(1.0, products / kMostProducts)));
}

bool Searcher::stops() const {
  is_stopped_ = is_stopped_ || (stop_ != nullptr && *stop_ && (*stop_)());
  return is_stopped_;
}

Searcher::Searcher(std::span<const Observation> observations, const std::function<bool()>* stop)
    : stop_(stop) {
  double most = 0;
  for (const Observation& o : observations) {
    if (stops()) return;
    simulators_.emplace_back(o, telling_rows(o));
    // The spec was validated: what is declared can always be predicted.
    declared_.push_back(compare(simulators_.back(), *simulators_.back().predict({})));
    if (std::vector<std::int64_t> rows = missed_rows(o, simulators_.back(), declared_.back());
        !rows.empty()) {
      const std::vector<std::int64_t>& told = simulators_.back().rows();
      rows.insert(rows.end(), told.begin(), told.end());
      std::ranges::sort(rows);
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
      simulators_.pop_back();
      simulators_.emplace_back(o, std::move(rows));
      declared_.back() = compare(simulators_.back(), *simulators_.back().predict({}));
    }
    scouts_.emplace_back(o, scout_rows(simulators_.back(), declared_.back()),
                         scout_heads(o, declared_.back()));
    const double worst = worst_of_text(simulators_.back(), declared_.back());
    if (worst > most) telling_ = declared_.size() - 1;
    most = std::max(most, worst);
  }
}

Score Searcher::score(std::span<const Fault> faults) const {
  Score score;
  if (stops()) return score;
  for (std::size_t i = 0; i < simulators_.size(); ++i) {
    const Result<Prediction> first_look = scouts_[i].predict(faults);
    // What does not apply to an observation changes nothing of it.
    Misfit misfit = first_look ? compare(scouts_[i], *first_look) : declared_[i];
    if (first_look && misfit.worst <= kExcluded) {
      if (const auto prediction = simulators_[i].predict(faults))
        misfit = compare(simulators_[i], *prediction);
    }
    add(misfit, first_look.has_value(), simulators_.size(), score);
  }
  return score;
}

const Simulator& Searcher::looked_at(std::size_t i) const {
  return has_forward(scouts_[i].observation()) ? scouts_[i] : simulators_[i];
}

bool Searcher::is_forward_right() const {
  for (std::size_t i = 0; i < scouts_.size(); ++i) {
    if (!has_forward(scouts_[i].observation())) return false;
    if (std::ranges::any_of(declared_[i].worst_of_row, [](double x) { return x > kFits; })) return false;
  }
  return true;
}

bool Searcher::keeps_forward(std::span<const Fault> faults) const {
  return std::ranges::all_of(scouts_, [&](const Simulator& scout) {
    const Result<Prediction> prediction = scout.predict(faults);
    return !prediction || compare(scout, *prediction).worst <= kFits;
  });
}

double Searcher::cost_of_look() const {
  const Simulator& simulator = looked_at(telling_);
  const Observation& o = simulator.observation();
  const HeadSpec& heads = o.spec.heads;
  // A gradient takes the forward again and four products of its size.
  const double rows =
      has_forward(o) ? static_cast<double>(simulator.rows().size()) : 5.0 * static_cast<double>(o.q_len());
  return rows * static_cast<double>(o.kv_len()) * heads.num_q_heads * (heads.qk_head_dim + heads.v_head_dim);
}

// For choosing among the values of a number: the same few rows for each, so that its misfit has no steps.
Score Searcher::first_look(std::span<const Fault> faults) const {
  if (stops()) return {};
  const auto look = [&](std::size_t i, std::size_t num_observations, Score& score) {
    const Simulator& simulator = looked_at(i);
    const Result<Prediction> prediction = simulator.predict(faults);
    add(prediction ? compare(simulator, *prediction) : declared_[i], prediction.has_value(), num_observations,
        score);
  };
  Score score;
  look(telling_, 1, score);
  if (score.shows) return score;
  score = {};
  for (std::size_t i = 0; i < scouts_.size(); ++i) look(i, scouts_.size(), score);
  return score;
}

bool Searcher::may_fit(std::span<const Fault> faults) const {
  const Score look = first_look(faults);
  return look.shows && look.worst <= kFits;
}

Candidate Searcher::best(const Hypothesis& hypothesis, std::span<const Fault> others) const {
  Candidate best;
  Score best_look;
  std::size_t best_idx = 0;
  bool is_scored = false;
  const std::size_t num_values = std::max<std::size_t>(hypothesis.values.size(), 1);
  for (std::size_t i = 0; i < num_values; ++i) {
    std::vector<Fault> faults(others.begin(), others.end());
    faults.push_back(hypothesis.fault(hypothesis.values.empty() ? 0.0 : hypothesis.values[i]));
    const Score look = first_look(faults);
    if (!look.shows) continue;
    // What does not explain the first few rows does not explain all: scored on everything only as the best.
    const bool may_fit = look.worst <= kFits;
    const Score score = may_fit ? this->score(faults) : look;
    const bool is_better = is_scored ? may_fit && better(score, best.score)
                                     : may_fit || best.faults.empty() || better(look, best_look);
    if (is_better) {
      best = {std::move(faults), score};
      best_look = look;
      best_idx = i;
      is_scored = may_fit;
    }
    if (may_fit && score.worst <= kFits) return best;  // values are in order of simplicity
  }
  if (best.faults.empty()) return best;
  if (!is_scored) best.score = score(best.faults);
  if (best.score.worst <= kFits || !hypothesis.is_continuous) return best;
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
  bool looks_at_all = false;
  const auto try_value = [&](double value) {
    std::vector<Fault> faults(others.begin(), others.end());
    const bool is_whole = hypothesis.kind->parameters.front().is_whole;
    faults.push_back(hypothesis.fault(is_whole ? std::round(value) : value));
    const Score score = looks_at_all ? this->score(faults) : first_look(faults);
    return Candidate{std::move(faults), score};
  };
  const GoldenSection section{to(low), to(high)};
  GoldenLimits limits{.max_steps = 60, .tolerance = 1e-9};
  GoldenPair<Candidate> found{try_value(from(section.left())), try_value(from(section.right()))};
  if (found.first.score.worst <= kFits && found.second.score.worst <= kFits) {
    // The few rows do not tell these numbers apart.
    looks_at_all = true;
    limits.tolerance = 1e-5;
    found = {try_value(from(section.left())), try_value(from(section.right()))};
  }
  const auto evaluate = [&](double x) -> Result<Candidate> { return try_value(from(x)); };
  const auto less = [](const Candidate& x, const Candidate& y) { return better(x.score, y.score); };
  found = *narrow(section, std::move(found), limits, evaluate, less);  // nothing in it fails
  Candidate best = std::move(less(found.first, found.second) ? found.first : found.second);
  const double scouted = best.score.worst;
  best.score = score(best.faults);
  const double value = best.faults.back().values.front();
  for (const int digits : {1, 2, 3, 4, 5}) {
    if (value == 0) break;
    const double exponent = std::floor(std::log10(std::abs(value))) - digits + 1;
    // Divided by a whole power of ten where there is one, so that 6.3 is not 6.300000000000001.
    const double unit = std::pow(10.0, std::abs(exponent));
    Candidate round =
        try_value(exponent < 0 ? std::round(value * unit) / unit : std::round(value / unit) * unit);
    if (round.score.worst > std::max(kFits, scouted)) continue;
    round.score = score(round.faults);
    if (round.score.worst <= std::max(kFits, best.score.worst)) return round;
  }
  return best;
}

}  // namespace sightline::checker
