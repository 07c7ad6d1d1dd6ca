#include "checker/misfit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sightline::checker {
namespace {

constexpr double kRatioCap = 1e6;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

double ratio(double observed, double predicted, double bound, double largest) {
  if (std::isinf(bound)) return 0.0;  // anything may stand there
  if (observed == predicted || (std::isnan(observed) && std::isnan(predicted))) return 0.0;
  if (std::isinf(observed) && std::abs(predicted) > largest && (observed > 0) == (predicted > 0)) return 0.0;
  const double difference = std::abs(observed - predicted);
  return std::isfinite(difference) ? difference / bound : std::numeric_limits<double>::infinity();
}

// The largest number of a type; what is beyond it comes out as infinity.
double largest_number(ElementType type) {
  if (type == ElementType::kF16) return 65504.0;
  if (type == ElementType::kF64) return std::numeric_limits<double>::max();
  return std::numeric_limits<float>::max() * (1.0 - 0x1p-8);
}

// Gathers ratios over arrays.
class Comparison {
 public:
  Comparison(ElementType type, std::size_t num_rows) : largest_(largest_number(type)) {
    misfit_.worst_of_row.resize(num_rows, 0.0);
  }

  // Entry [a, b, c] of a predicted array of `shape`, whose axis `row_axis` runs over `rows` of the observed
  // one (null: over all of it).
  void add(const char* tensor, const std::vector<double>& observed, const PredictedArray& predicted,
           std::array<std::int64_t, 3> shape, int row_axis, std::int64_t num_observed_rows,
           const std::vector<std::int64_t>* rows) {
    if (observed.empty() || predicted.values.empty()) return;
    std::array<std::int64_t, 3> full = shape;
    full[at(row_axis)] = num_observed_rows;
    std::size_t next = 0;
    std::array<std::int64_t, 3> i{};
    for (i[0] = 0; i[0] < shape[0]; ++i[0]) {
      for (i[1] = 0; i[1] < shape[1]; ++i[1]) {
        for (i[2] = 0; i[2] < shape[2]; ++i[2], ++next) {
          std::array<std::int64_t, 3> o = i;
          if (rows != nullptr) o[at(row_axis)] = (*rows)[at(i[at(row_axis)])];
          const double got = observed[at((o[0] * full[1] + o[1]) * full[2] + o[2])];
          const double r = add_number(tensor, o, got, predicted.values[next], predicted.bounds[next]);
          if (rows == nullptr) continue;
          double& worst_of_row = misfit_.worst_of_row[at(i[at(row_axis)])];
          worst_of_row = std::max(worst_of_row, r);
        }
      }
    }
  }

  [[nodiscard]] Misfit result() const {
    Misfit misfit = misfit_;
    if (count_ > 0) misfit.mean_square /= static_cast<double>(count_);
    return misfit;
  }

 private:
  double add_number(const char* tensor, const std::array<std::int64_t, 3>& index, double got, double expected,
                    double bound) {
    const double r = ratio(got, expected, bound, largest_);
    misfit_.worst = std::max(misfit_.worst, r);
    misfit_.mean_square += std::min(r, kRatioCap) * std::min(r, kRatioCap);
    ++count_;
    if (r > kFits && !misfit_.first) {
      misfit_.first = Difference{tensor, {index.begin(), index.end()}, expected, got};
    }
    return r;
  }

  double largest_;
  Misfit misfit_;
  std::int64_t count_ = 0;
};

}  // namespace

Misfit compare(const Simulator& simulator, const Prediction& prediction) {
  const Observation& o = simulator.observation();
  const HeadSpec& heads = o.spec.heads;
  const auto num_rows = static_cast<std::int64_t>(simulator.rows().size());
  Comparison all(o.type, simulator.rows().size());
  all.add("out", o.out, prediction.out, {num_rows, heads.num_q_heads, heads.v_head_dim}, 0, o.q_len(),
          &simulator.rows());
  all.add("lse", o.lse, prediction.lse, {num_rows, heads.num_q_heads, 1}, 0, o.q_len(), &simulator.rows());
  all.add("weights", o.weights, prediction.weights, {heads.num_q_heads, num_rows, o.kv_len()}, 1, o.q_len(),
          &simulator.rows());
  all.add("d_q", o.d_q, prediction.d_q, {o.q_len(), heads.num_q_heads, heads.qk_head_dim}, 0, o.q_len(),
          nullptr);
  all.add("d_k", o.d_k, prediction.d_k, {o.kv_len(), heads.num_kv_heads, heads.qk_head_dim}, 0, o.kv_len(),
          nullptr);
  all.add("d_v", o.d_v, prediction.d_v, {o.kv_len(), heads.num_kv_heads, heads.v_head_dim}, 0, o.kv_len(),
          nullptr);
  return all.result();
}

}  // namespace sightline::checker
