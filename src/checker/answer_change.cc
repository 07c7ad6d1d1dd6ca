#include "checker/answer_change.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "checker/ask.h"
#include "checker/faulted_calls.h"
#include "checker/simulate.h"

namespace sightline::checker {
namespace {

double change(double a, double b, double bound) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0.0;
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference / bound : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<double> out_bounds(const Observation& answered) {
  Observation only_out = without_outputs(answered);
  only_out.out = answered.out;
  // The spec was validated: what is declared can always be predicted.
  return Simulator(only_out, all_rows(answered)).predict({})->out.bounds;
}

double worst_change(const std::vector<double>& a, const std::vector<double>& b,
                    std::span<const double> bounds) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, change(a[i], b[i], bounds[i]));
  return worst;
}

double worst_change(const Observation& a, const Observation& b, std::span<const double> bounds,
                    const std::function<bool(std::int64_t row)>& counts) {
  const std::int64_t width = std::int64_t{a.spec.heads.num_q_heads} * a.spec.heads.v_head_dim;
  double worst = 0;
  for (std::int64_t row = 0; row < a.q_len(); ++row) {
    if (!counts(row)) continue;
    for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
      const auto at = static_cast<std::size_t>(i);
      worst = std::max(worst, change(a.out[at], b.out[at], bounds[at]));
    }
  }
  return worst;
}

}  // namespace sightline::checker
