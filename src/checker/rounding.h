// How far rounding may move each number of a prediction. A bound, not an estimate: what lies beyond it is
// something else.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/checker/observation.h"

namespace sightline::checker {

/// Half a unit in the last place, relative. Half types accumulate in f32, so nothing but f64 is finer than
/// that.
[[nodiscard]] double unit_roundoff(ElementType type);

/// One row and head of attention as the oracle computed it.
struct RowResult {
  std::int64_t row = 0;  ///< of the observation's queries
  int head = 0;
  std::int64_t num_keys = 0;
  const double* weights = nullptr;  ///< [num_keys]
  const double* out = nullptr;      ///< [v_head_dim]
  double lse = 0;
};

/// Of each query row and head, and of each key and key head: how far rounding moves their gradients.
struct GradientErrors {
  std::vector<double> d_q, d_k, d_v;
};

/// Bounds for results of one observation, in the type it was computed in with f32 accumulation.
///
/// Score of a pair: e = 2u (scale |q||k| + 1), since both rotations and the product round at |q||k|.
/// Output:          u |o| + sum_j w_j (u |v_j| + e_j |v_j - o|), the weights' change by de_j moving o towards
///                  v_j. Weights, lse and gradients alike. All times 8 for operations in a row.
class RoundingBounds {
 public:
  explicit RoundingBounds(const Observation& observation);
  /// Of an implementation that reads `k` and `v` for the observation's. `v` must outlive this.
  RoundingBounds(const Observation& observation, const std::vector<double>& q, const std::vector<double>& k,
                 const std::vector<double>& v);

  /// As wide as scores of `spec` round, where its scale is larger than the observation's. No wider than four
  /// times: a bound that lets weights be anything would let `spec` explain anything.
  void widen_for(const AttentionSpec& spec);

  /// Appends v_head_dim bounds of an output, and one of an lse.
  void add_out(const RowResult& result, std::vector<double>& to) const;
  void add_lse(const RowResult& result, std::vector<double>& to) const;
  /// Writes num_keys bounds of weights.
  void set_weights(const RowResult& result, double* to) const;
  /// What rounding one row's scores, weights and products may move in its head's gradients, added up.
  /// `d_out` [v_head_dim]: upstream of the row. With dS_j = w_j (dP_j - D), whose error is
  /// w_j ((e_j + mean e) |dP_j - D| + u32 |dO| (|v_j| + |o|) + u |dO| |o| / sqrt(dim)):
  ///   d_q: scale sum_j err(dS_j) |k_j|, d_k: scale sum err(dS_j) |q|, d_v: sum w_j (u + e_j + mean e) |dO|,
  /// vectors at the size of their mean component.
  void add_gradient_errors(const RowResult& result, const double* d_out, GradientErrors& to) const;
  /// Bounds of a gradient with `errors` for each of its heads: besides them its numbers round at the size of
  /// their neighbours.
  [[nodiscard]] std::vector<double> of_gradient(const std::vector<double>& gradient,
                                                const std::vector<double>& errors) const;

  /// The smallest bound: what differs by less is subnormal or nearly so.
  static constexpr double kSmallest = 1e-30;

 private:
  [[nodiscard]] double usable(double error) const;
  [[nodiscard]] double score_error(const RowResult& result, std::int64_t key) const;
  [[nodiscard]] double mean_score_error(const RowResult& result) const;

  HeadSpec heads_;
  const std::vector<double>* v_;
  double smallest_;
  double unit_;   ///< half a unit in the last place, relative
  double scale_;  ///< of scores, with the magnitude of cos and sin
  std::vector<double> q_norms_, k_norms_;
};

}  // namespace sightline::checker
