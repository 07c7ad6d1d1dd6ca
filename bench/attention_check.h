// Sampled rows of an attention result against the float64 oracle, by the error rule of design 5.3.
#pragma once

#include <span>

#include "bench/checked_error.h"
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

/// Adds `num_samples` rows of `result` to `error`, scaled by the sum of P|v|. Rotation and bias are not
/// looked at: rows have none.
[[nodiscard]] Result<void> check_rows(const SequenceResult& result, int num_samples, CheckedError& error);

}  // namespace sightline::bench
