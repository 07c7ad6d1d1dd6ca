// The order of the axes of q, k, v and out: guessed from the sizes, or as told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/subjects/dump/dump.h"

namespace sightline::subjects {

/// The arrays whose axes must agree; out may be null.
struct AxesQuestion {
  const DumpArray* q = nullptr;
  const DumpArray* k = nullptr;
  const DumpArray* v = nullptr;
  const DumpArray* out = nullptr;
  bool has_positions = false;  ///< then there may be more queries than keys
};

/// Sizes under one order of axes.
struct Layout {
  std::string axes;        ///< letters of "bthd", as q has them
  bool is_merged = false;  ///< out has heads and dim in one axis
  std::int64_t num_batch = 1;
  std::int64_t q_len = 0, kv_len = 0;
  HeadSpec heads;
  std::string assumption;  ///< empty when the sizes left no choice
};

/// Errors (kInvalidContent): no order fits (shapes are named), or several do and neither heads nor tokens can
/// be told by size. `told` empty: guess.
[[nodiscard]] Result<Layout> find_layout(const Dump& dump, const AxesQuestion& question,
                                         const std::string& told);

/// Batch row `b` of an array as [tokens, heads, dim]; `axes` as its shape has them.
[[nodiscard]] std::vector<double> to_tokens_heads_dim(const DumpArray& array, const std::string& axes,
                                                      std::int64_t b);

}  // namespace sightline::subjects
