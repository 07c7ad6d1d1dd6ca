#include "softmax_row.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace sightline::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// Weights of two parts, the keys before `num_cached` and the rest with the sink, as they come out when
/// logarithms to base 2 of the parts' sums are merged as natural ones: each part's share p becomes p^log2(e).
void merge_in_base_2(std::int64_t num_cached, SoftmaxRow& row) {
  double cached = 0;
  for (std::int64_t j = 0; j < num_cached; ++j) cached += row.weights[at(j)];
  const double others = 1 - cached;
  if (cached <= 0 || others <= 0) return;
  const double cached_share = std::pow(cached, std::numbers::log2e);
  const double other_share = std::pow(others, std::numbers::log2e);
  const double sum = cached_share + other_share;
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(row.weights.size()); ++j) {
    row.weights[at(j)] *= j < num_cached ? cached_share / sum / cached : other_share / sum / others;
  }
  row.sink_weight *= other_share / sum / others;
  row.lse = row.lse * std::numbers::log2e + std::log(sum);
}

}  // namespace

SoftmaxRow softmax_row(const AttentionCall& call, int h, std::int64_t i, const std::vector<bool>& visible) {
  const std::int64_t kv_len = call.kv_len();
  const Precision precision = call.deviation().softmax_precision;
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
  // Slots of 0 score 0 and add nothing to the output.
  const std::int64_t num_zero_keys = call.num_zero_keys(i);
  if (num_zero_keys > 0) largest = std::max(largest, 0.0);
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
  if (num_zero_keys > 0) sum += static_cast<double>(num_zero_keys) * std::exp(-largest);
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
  if (call.deviation().parts_merged_in_base_2) merge_in_base_2(call.in().num_cached, row);
  return row;
}

}  // namespace sightline::reference
