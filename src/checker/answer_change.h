// How far two answers to the same question lie apart, in rounding bounds of the declared meaning.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sightline/checker/observation.h"

namespace sightline::checker {

/// Rounding bounds of the outputs of an answered question, [q_len, num_q_heads, v_head_dim].
[[nodiscard]] std::vector<double> out_bounds(const Observation& answered);

/// The largest change of an array, each element in its bound. NaN agrees with NaN alone.
[[nodiscard]] double worst_change(const std::vector<double>& a, const std::vector<double>& b,
                                  std::span<const double> bounds);

/// The largest change of the outputs of the query rows that `counts`.
[[nodiscard]] double worst_change(const Observation& a, const Observation& b, std::span<const double> bounds,
                                  const std::function<bool(std::int64_t row)>& counts);

}  // namespace sightline::checker
