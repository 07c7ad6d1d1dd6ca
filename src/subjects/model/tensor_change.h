// One tensor of a layer beside ours: is it ours, scaled, moved by a constant, shifted or put into another
// order? Plain arrays in, a kind with its parameter out; knows no model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sightline/base/error.h"

namespace sightline::subjects {

enum class ChangeKind : std::uint8_t {
  kScaled,      ///< theirs = factor * ours
  kOffset,      ///< theirs = ours + a constant
  kShifted,     ///< row i of theirs is row i - shift of ours
  kHeads,       ///< head h of theirs is head order[h] of ours
  kTokens,      ///< row i of theirs is row order[i] of ours
  kComponents,  ///< component c of theirs, of all heads, is component order[c] of ours
  kHeadsFirst,  ///< [heads, tokens, dim] read as [tokens, heads * dim]
};

struct TensorChange {
  ChangeKind kind = ChangeKind::kScaled;
  double value = 0;                 ///< factor, constant or shift
  std::vector<std::int64_t> order;  ///< of the first text
  std::vector<std::int64_t> heads;  ///< scaled or offset: the heads concerned; empty: all
  double misfit = 0;  ///< largest difference that is left, in tolerances; rows that a shift leaves open aside
};

/// One tensor of one text, twice: rows [num_tokens, num_heads * dim]. Infinite of either sign: not there, and
/// equal.
struct TensorPair {
  std::span<const double> ours, theirs;
  std::int64_t num_tokens = 0;
  std::int64_t num_heads = 1;
  std::int64_t dim = 0;
};

/// Largest difference in units of `tolerance` times the root mean square of theirs, and where; NaN is
/// infinite.
struct TensorMisfit {
  double worst = 0;
  std::int64_t index = -1;  ///< the first that is beyond 1, or -1
};
[[nodiscard]] TensorMisfit tensor_misfit(const TensorPair& pair, double tolerance);

/// The simplest change that makes ours theirs in every text, within `tolerance` of the root mean square;
/// nothing where none does. Scaled and offset may concern some heads alone. Cost: O(width^2 * tokens) for
/// orders.
[[nodiscard]] std::optional<TensorChange> explain_change(std::span<const TensorPair> texts, double tolerance);

/// Texts on which no kind but that of `change` explains the difference.
[[nodiscard]] std::int64_t num_decisive(std::span<const TensorPair> texts, const TensorChange& change,
                                        double tolerance);

/// "the heads of ours in the order 2 0 1".
[[nodiscard]] std::string describe(const TensorChange& change);

}  // namespace sightline::subjects
