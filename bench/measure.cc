// The timing of rows.
#include <algorithm>
#include <chrono>

#include "bench/bench.h"

namespace sightline::bench {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr double kLeastRepeatSeconds = 2e-3;
constexpr double kMostInner = 1e6;

/// A body, run so often that the clock and a scheduler's tick do not matter.
class Timed {
 public:
  explicit Timed(const std::function<void()>& body) : body_(body) {
    if (!body) return;
    body();
    double seconds = time(1);
    if (seconds < 1e-4) seconds = time(20);  // the second call of a short body still warms up
    inner_ =
        static_cast<std::int64_t>(std::clamp(kLeastRepeatSeconds / std::max(seconds, 1e-9), 1.0, kMostInner));
  }
  [[nodiscard]] double repeat() const { return time(inner_); }

 private:
  [[nodiscard]] double time(std::int64_t count) const {
    const double start = now();
    for (std::int64_t i = 0; i < count; ++i) body_();
    return (now() - start) / static_cast<double>(count);
  }
  const std::function<void()>& body_;
  std::int64_t inner_ = 1;
};

}  // namespace

void measure_against(const Bench& bench, Row row, const std::function<void()>& body,
                     const std::function<void()>& reference) {
  const Timed timed(body);
  const Timed timed_reference(reference);
  const int least = bench.runs > 1 ? 1 : 3;
  double before = 0.0;
  for (int r = 0; r < bench.runs; ++r) {
    if (bench.before_run) bench.before_run();
    Run run;
    if (r == 0 || bench.before_run) before = calibrate(bench, row.limit);
    run.limit_before = before;
    const double start = now();
    for (int i = 0; i < bench.repeats; ++i) {
      if (i >= least && now() - start > bench.run_seconds) break;
      run.seconds.push_back(timed.repeat());
      if (reference) run.reference_seconds.push_back(timed_reference.repeat());
    }
    std::sort(run.seconds.begin(), run.seconds.end());
    std::sort(run.reference_seconds.begin(), run.reference_seconds.end());
    before = run.limit_after = calibrate(bench, row.limit);
    row.runs.push_back(std::move(run));
  }
  bench.report(row);
}

void measure(const Bench& bench, Row row, const std::function<void()>& body) {
  measure_against(bench, std::move(row), body, {});
}

void report_unmeasured(const Bench& bench, Row row, std::string reason) {
  row.measured = false;
  row.note = std::move(reason);
  bench.report(row);
}

}  // namespace sightline::bench
