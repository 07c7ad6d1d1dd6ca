// One block of weights against another: the first relation that explains the second.
#pragma once

#include <span>
#include <vector>

#include "sightline/formats/tensor_info.h"
#include "sightline/model/compare.h"

namespace sightline {

/// What a block of rows is, as far as its relations depend on it.
struct BlockShape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;  ///< 1 for vectors
  int head_dim = 0;       ///< rows of one head; 0: no heads
  int rotary_dim = 0;     ///< leading rows of a head that turn in pairs; 0: none
};

/// Relative rounding of a stored type against exact weights.
[[nodiscard]] double rounding_of(DataType type);

/// Sets relation, error, and what the relation measures, of `result`. `tolerance`: relative, by the stored
/// types.
void relate(const BlockShape& shape, std::span<const float> first, std::span<const float> second,
            double tolerance, WeightComparison& result);

/// True when the rows of `second` are those of `first` in another order. Cost: rows^2 * 64.
[[nodiscard]] bool are_rows_permuted(std::int64_t rows, std::int64_t cols, std::span<const float> first,
                                     std::span<const float> second, double tolerance);

}  // namespace sightline
