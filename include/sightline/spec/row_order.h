// The order of the rows of a q or k projection whose heads rotate, and orders made for heads of another
// width. Files keep each head's rows as halves, [2, dim / 2], or as neighbours, [dim / 2, 2]; going from one
// to the other needs the width of a head. Knows no file and no weight.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/spec/rope.h"

namespace sightline {

/// On which of the two ways heads were taken for ones of another width.
enum class RowMistake : std::uint8_t {
  kNone,
  kWritten,  ///< halves were written as neighbours for another width, and are read back rightly
  kRead,     ///< neighbours, written rightly, are put back into halves for another width
};

/// Widths that `num_rows` rows can be taken for: even divisors, ascending, other than `head_dim`. One row of
/// a pair, so width 2, moves nothing: those rows were not put into another order at all.
[[nodiscard]] std::vector<int> other_head_widths(std::int64_t num_rows, int head_dim);

/// Entry r: which of the right rows stands in place of row r. `pairing`: of the rows as they should be.
/// Requires an even `head_dim` and `width` that divide `num_rows`.
/// Source: the permutation of llama.cpp's converters; ggml-org/llama.cpp#3364,
/// huggingface/transformers#31766.
[[nodiscard]] std::vector<std::int64_t> misplaced_rows(RowMistake mistake, std::int64_t num_rows,
                                                       int head_dim, int width, RopePairing pairing);

}  // namespace sightline
