// Sampled rows of an attention result against the float64 oracle, by the error rule of design 5.3.
#pragma once

#include <span>
#include <string>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/spec/attention_spec.h"

namespace sightline::bench {

/// One sequence of a call: its queries, keys and values as the call read them (rounded to what a cache
/// stores), and what it wrote.
struct SequenceResult {
  const AttentionSpec* spec = nullptr;
  MaskTables tables;
  std::span<const TokenCoord> q_coords, kv_coords;
  StridedView<const float, 3> q, k, v, out;
};

/// Largest errors of the sampled rows, scaled by the sum of P|v|.
struct CheckedError {
  double ours = 0.0;
  double plain = 0.0;     ///< the plain method in f32
  double rounding = 0.0;  ///< atol of the rule
  [[nodiscard]] bool holds() const { return ours <= 2.0 * plain + rounding; }
};

/// Adds `num_samples` rows of `result` to `error`. Rotation and bias are not looked at: rows have none.
[[nodiscard]] Result<void> check_rows(const SequenceResult& result, int num_samples, CheckedError& error);

}  // namespace sightline::bench
