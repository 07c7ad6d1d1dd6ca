// What a training batch means: which targets carry loss, which documents see each other, at which positions.
// Nothing is run; the arrays are held against the declared objective.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/checker/report.h"
#include "sightline/spec/loss.h"
#include "sightline/spec/mask.h"

namespace sightline::checker {

/// Arrays as a data loader hands them to a model. Dense, [num_rows, num_tokens] unless said otherwise; what
/// was not given is empty.
struct TrainingBatch {
  std::int64_t num_rows = 0;
  std::int64_t num_tokens = 0;
  std::vector<std::int64_t> input_ids;
  std::vector<std::int64_t> labels;
  std::vector<std::int64_t> attention_mask;  ///< not 0: a real token
  std::vector<std::int64_t> pair_mask;  ///< [num_rows, num_tokens, num_tokens], not 0: the query sees the key
  std::vector<std::int64_t> position_ids;
  std::vector<std::int64_t> segment_ids;
  std::vector<std::int64_t> is_prompt;  ///< not 0: of the prompt
  std::optional<std::int64_t> pad_id, eos_id;
  std::int64_t ignore_index = -100;  ///< a label that carries no loss
};

/// What was intended.
struct BatchDeclaration {
  LossSpec loss;
  MaskSpec mask = mask_rule(MaskOp::kCausal) & mask_rule(MaskOp::kSegment);
  /// The labels of row i are the token itself, and the model compares its output at i - 1 with it; false: the
  /// data loader shifted, the label of i is what i predicts.
  bool model_shifts = true;
  bool positions_restart = true;  ///< with each document
};

/// Holds a batch against its declaration and names what differs: loss.label_shift, loss.scope (padding, an
/// end of text ignored by its value, the next document, the prompt), pack.cross_document,
/// pack.position_reset, pos.left_padding, mask.padding_ignored, mask.causal_dropped, mask.window_scope,
/// mask.polarity_or_kind; several together where they explain all labels. `unknown` where labels, positions
/// or pairs differ and none of these explains it.
///
/// Documents are those of segment_ids; else they begin where position_ids do not rise; else they end with
/// eos_id. Padding is what attention_mask says; else the run of pad_id at an end of the row (the first of a
/// run at the right is a genuine end of text when pad_id = eos_id). A fault is certain when at least two rows
/// show it. Evidence holds the counts of tokens, targets and documents. Errors (kInvalidArgument): no ids,
/// arrays of other sizes, a mask with tables. Cost: O(num_rows * num_tokens), and of pairs where a pair_mask
/// is given.
[[nodiscard]] Result<Report> check_batch(const TrainingBatch& batch, const BatchDeclaration& declaration);

}  // namespace sightline::checker
