// What a training step made of its logits and labels: which targets were counted, and what was averaged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/checker/observation.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

/// One training step: its logits and labels, and the loss or the gradient that came out. Dense arrays; what
/// was not given is empty.
struct LossObservation {
  std::int64_t num_rows = 0;
  std::int64_t num_tokens = 0;  ///< of a row
  std::int64_t vocab_size = 0;
  std::int64_t hidden_dim = 0;  ///< 0: no hidden states
  ElementType type = ElementType::kF32;

  std::vector<double> logits;             ///< [num_rows, num_tokens, vocab_size]; empty: hidden head^T
  std::vector<double> hidden;             ///< [num_rows, num_tokens, hidden_dim], as the head reads them
  std::vector<double> head;               ///< [vocab_size, hidden_dim]
  std::vector<std::int64_t> labels;       ///< [num_rows, num_tokens]
  std::vector<std::int64_t> input_ids;    ///< the same shape, or empty
  std::vector<std::int64_t> micro_batch;  ///< [num_rows]: which one a row is of, from 0; empty: one for all
  std::int64_t ignore_index = -100;       ///< a label that carries no loss
  /// The output at i is compared with the label of i + 1; false: with that of i, the data loader shifted.
  bool model_shifts = true;

  std::optional<double> loss;  ///< of the whole step
  std::vector<double> d_head;  ///< [vocab_size, hidden_dim]
};

/// Holds the loss (or the gradient of the head) of training steps against the one objective: the sum of
/// -log softmax(logits)[target] over all targets of the step, divided once by their number over all
/// micro-batches. Names loss.label_shift (`shift` measured), loss.normalisation (means of micro-batches or
/// rows averaged, means added, no division, one too many, all positions counted, or a `factor`), loss.scope
/// (labels of one `value` carry no loss; ignored positions carry that of their token), alone or two together.
///
/// Several observations narrow the answer; a fault is certain when at least two of them put every other kind
/// beyond ten times the rounding bound. A factor that is none of the others is named only where more than one
/// number was observed. Errors (kInvalidArgument): no observation, arrays of other sizes, labels outside the
/// vocabulary, nothing observed. Cost: O(hypotheses * targets * vocab_size), some tens of hypotheses.
[[nodiscard]] Result<Report> check_loss(std::span<const LossObservation> observations);

}  // namespace sightline::checker
