// A training batch row by row: which tokens are real, to which document they belong, and what each position
// is asked to predict.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/checker/batch.h"

namespace sightline::checker {

/// The tokens of one row under the declaration.
struct BatchRow {
  std::vector<TokenCoord> coords;       ///< pos counts the real tokens of the row
  std::vector<std::uint8_t> is_prompt;  ///< empty: nothing is
  std::vector<std::int64_t> ids;
  std::int64_t num_documents = 0;
};

[[nodiscard]] BatchRow batch_row(const TrainingBatch& batch, const BatchDeclaration& declaration,
                                 std::int64_t row);

/// Ways in which targets go wrong; all false and 0 is the declaration.
struct LabelDeviation {
  int later = 0;                   ///< position i is asked for what i + later should be asked for
  bool ignores_pad_value = false;  ///< real tokens with the id of padding carry no loss
  bool asks_padding = false;       ///< padding carries loss
  bool flips_next_document = false;
  bool flips_prompt = false;
};

/// The token that each position is asked for, or ignore_index.
[[nodiscard]] std::vector<std::int64_t> expected_targets(const TrainingBatch& batch, const LossSpec& loss,
                                                         const BatchRow& row,
                                                         const LabelDeviation& deviation);

/// What the labels of one row ask each position for.
[[nodiscard]] std::vector<std::int64_t> given_targets(const TrainingBatch& batch,
                                                      const BatchDeclaration& declaration, std::int64_t row);

}  // namespace sightline::checker
