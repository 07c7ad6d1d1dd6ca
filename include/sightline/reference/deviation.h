// The ways of being wrong that neither a spec nor a trace nor coordinates can express. Only the oracle
// reads this; the engine has no such switch.
#pragma once

#include <cstdint>
#include <optional>

#include "sightline/spec/mask.h"

namespace sightline::reference {

/// Which key head a query head reads.
enum class HeadMap : std::uint8_t {
  kGrouped,  ///< h / group_size: right
  kModulo,   ///< h mod num_kv_heads: key heads tiled instead of repeated
};

/// What the softcap does to a scaled score x, with cap c.
enum class SoftcapForm : std::uint8_t {
  kCappedTanh,      ///< c tanh(x / c): right
  kScoreTimesTanh,  ///< x tanh(x / c): even in x
};

/// How the gradients of the query heads of a group meet in their key head.
enum class GqaReduction : std::uint8_t {
  kSum,       ///< right
  kMean,      ///< divided by group_size
  kLastHead,  ///< the last query head overwrites the others
};

/// The type in which scores, weights and their sum are rounded.
enum class SoftmaxPrecision : std::uint8_t { kDouble, kFloat, kBf16, kF16 };

/// One defaulted field for each way of being wrong; the default of every field is right.
struct Deviation {
  HeadMap head_map = HeadMap::kGrouped;
  /// Invisible pairs, padding included, get this score instead of being left out.
  std::optional<double> fill_value = std::nullopt;
  /// The 0/1 mask is added to the scores and hides nothing.
  bool mask_is_added = false;
  /// A row that sees nothing is 0/0 instead of 0.
  bool empty_row_is_nan = false;
  SoftcapForm softcap_form = SoftcapForm::kCappedTanh;
  bool softcap_after_bias = false;
  /// The scale multiplies the bias too.
  bool scale_multiplies_bias = false;
  /// The lse is given as a logarithm to base 2.
  bool lse_is_base_2 = false;
  int sink_count = 1;  ///< times the sink joins the denominator
  SoftmaxPrecision softmax_precision = SoftmaxPrecision::kDouble;

  // The backward alone; the forward stays right.
  bool omit_row_term = false;          ///< dS = P * dP
  bool omit_softcap_gradient = false;  ///< as if the cap had slope 1
  bool omit_sink_gradient = false;
  std::optional<MaskSpec> backward_mask = std::nullopt;  ///< visibility of the backward
  GqaReduction gqa_reduction = GqaReduction::kSum;
  std::uint64_t backward_dropout_seed_offset = 0;  ///< the backward draws with seed + offset

  bool operator==(const Deviation&) const = default;
};

}  // namespace sightline::reference
