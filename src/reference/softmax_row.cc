#include "softmax_row.h"

#include <cmath>
#include <limits>

namespace sightline::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

SoftmaxRow softmax_row(const AttentionCall& call, int h, std::int64_t i, const std::vector<bool>& visible) {
  const std::int64_t kv_len = call.kv_len();
  const SoftmaxPrecision precision = call.deviation().softmax_precision;
  const double sink = call.sink_logit(h);
  SoftmaxRow row;
  row.pairs.resize(at(kv_len));
  row.weights.resize(at(kv_len), 0.0);

  double largest = -kInfinity;
  bool has_nan = false;
  for (std::int64_t j = 0; j < kv_len; ++j) {
    PairScore& pair = row.pairs[at(j)];
    pair = call.pair_score(h, i, j, visible[at(j)]);
    if (!pair.counts) continue;
    // NaN compares false with everything, so it is carried apart from the maximum.
    if (std::isnan(pair.logit)) has_nan = true;
    if (pair.logit > largest) largest = pair.logit;
  }
  if (largest == -kInfinity && !has_nan) {
    row.is_empty = true;
    row.lse = sink;
    row.sink_weight = sink == -kInfinity ? 0 : 1;
    return row;
  }
  if (sink > largest) largest = sink;

  double sum = 0;
  for (std::int64_t j = 0; j < kv_len; ++j) {
    if (!row.pairs[at(j)].counts) continue;
    row.weights[at(j)] = round_to(precision, std::exp(row.pairs[at(j)].logit - largest));
    sum = round_to(precision, sum + row.weights[at(j)]);
  }
  if (call.has_sink()) {
    row.sink_weight = call.deviation().sink_count * std::exp(sink - largest);
    sum += row.sink_weight;
  }
  if (has_nan || largest == kInfinity) sum = std::numeric_limits<double>::quiet_NaN();
  for (double& weight : row.weights) weight = round_to(precision, weight / sum);
  for (std::int64_t j = 0; j < kv_len; ++j) {
    if (!row.pairs[at(j)].counts) row.weights[at(j)] = 0;
  }
  row.sink_weight /= sum;
  row.lse = largest + std::log(sum);
  return row;
}

}  // namespace sightline::reference
