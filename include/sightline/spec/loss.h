// The training objective: which position predicts what, and what is averaged.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/spec/coords.h"

namespace sightline {

enum class PromptScope : std::uint8_t { kIn, kOut };
enum class NextDocumentScope : std::uint8_t { kIn, kOut };
/// kAllTargets: sum over all targets of the step / their number, over all micro-batches and ranks.
enum class LossNormalisation : std::uint8_t { kAllTargets };

struct LossSpec {
  int shift = 1;  ///< position i predicts token i + shift; 1 is the objective, others are faults
  PromptScope prompt = PromptScope::kIn;
  /// The first token of the next packed document as a target of the last token of this one.
  NextDocumentScope next_document = NextDocumentScope::kOut;
  LossNormalisation normalisation = LossNormalisation::kAllTargets;
  bool operator==(const LossSpec&) const = default;
};

/// The target row of each row of one sequence, or -1: row i predicts row i + shift when both are valid
/// (padding is excluded by `valid`, never by token id), the target is not in the prompt under kOut, and
/// lies in the same segment under kOut.
///   coords [num_tokens]; is_prompt [num_tokens] or empty.
[[nodiscard]] std::vector<std::int64_t> loss_targets(const LossSpec& loss, std::span<const TokenCoord> coords,
                                                     std::span<const std::uint8_t> is_prompt);

/// Errors (kInvalidArgument): shift outside [0, 16].
[[nodiscard]] Result<void> validate(const LossSpec& loss);
[[nodiscard]] Json to_json(const LossSpec& loss);
[[nodiscard]] Result<LossSpec> loss_spec_from_json(const Json& json);

}  // namespace sightline
