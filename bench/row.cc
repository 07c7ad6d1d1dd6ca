#include "bench/row.h"

#include <algorithm>
#include <cmath>

namespace sightline::bench {

namespace {

double middle(const std::vector<double>& ascending) {
  const std::size_t half = ascending.size() / 2;
  if (ascending.empty()) return 0.0;
  return ascending.size() % 2 == 1 ? ascending[half] : 0.5 * (ascending[half - 1] + ascending[half]);
}

// `of` over the runs that count: the steady ones where there are any.
template <typename Of>
double median_of_runs(const Row& row, Of of) {
  const bool any_steady = row.num_steady() > 0;
  std::vector<double> values;
  for (const Run& run : row.runs) {
    if (run.steady() || !any_steady) values.push_back(of(run));
  }
  return median(std::move(values));
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return middle(values);
}

bool Run::steady() const {
  return std::abs(limit_before - limit_after) < 0.05 * std::max(limit_before, limit_after);
}

int Row::num_steady() const {
  return static_cast<int>(
      std::count_if(runs.begin(), runs.end(), [](const Run& run) { return run.steady(); }));
}

double Row::median_seconds() const {
  return median_of_runs(*this, [](const Run& run) { return middle(run.seconds); });
}

double Row::minimum_seconds() const {
  double least = HUGE_VAL;
  for (const Run& run : runs) {
    if (!run.seconds.empty()) least = std::min(least, run.seconds.front());
  }
  return std::isfinite(least) ? least : 0.0;
}

double Row::rate() const { return median_seconds() > 0.0 ? work / median_seconds() : 0.0; }

double Row::tokens_per_second() const { return median_seconds() > 0.0 ? tokens / median_seconds() : 0.0; }

double Row::limit_rate() const {
  return median_of_runs(*this, [](const Run& run) { return std::max(run.limit_before, run.limit_after); });
}

double Row::figure(const Run& run) const {
  const double seconds = middle(run.seconds);
  switch (limit) {
    case Limit::kCount:
      return counted;
    case Limit::kSeconds:
      return seconds;
    case Limit::kReference: {
      const double expected = share * middle(run.reference_seconds);
      if (expected <= 0.0 || seconds <= 0.0) return 0.0;
      return is_speed ? expected / seconds : seconds / expected;
    }
    default:
      break;
  }
  const double most = std::max(run.limit_before, run.limit_after);
  return most > 0.0 && seconds > 0.0 ? work / seconds / most : 0.0;
}

double Row::figure() const {
  if (limit == Limit::kCount) return counted;
  return median_of_runs(*this, [this](const Run& run) { return figure(run); });
}

}  // namespace sightline::bench
