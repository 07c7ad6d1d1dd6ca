// Rows rounded to a type at a random offset: a run with them is one draw of what rounding to that type does
// to a model's outputs.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/base/strided_view.h"
#include "sightline/model/model.h"
#include "sightline/subjects/model/foreign_types.h"

namespace sightline::subjects {

/// Adds to each number of `rows` an error that is uniform within half a step of `type` to either side: the
/// distribution of rounding to nearest, without its dependence on the last bits of the number (subtractive
/// dither; Lipshitz et al. 1992). `steps`: factor on the step, one a row; empty: 1. A row's errors depend on
/// `seed`, row and column alone.
void dither_rows(RowType type, std::uint64_t seed, StridedView<float, 2> rows,
                 const std::vector<double>& steps = {});

/// A change of rows for one run of one sequence: what a program of these types rounds, dithered by `seed`.
/// q, k and v are rounded as the cache is (a product of f16 keys reads f16 queries), and a sum of v over n
/// keys held in the cache's float type is rounded n times, so by the root of n steps; beside a q8 cache it is
/// f32, as in ggml.
[[nodiscard]] RowChange dithered(const ForeignTypes& types, std::uint64_t seed);

}  // namespace sightline::subjects
