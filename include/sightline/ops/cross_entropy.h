// Log-probabilities and the loss of given targets. In double and in a fixed order: a loss is a sum over
// many rows and is compared between runs. Which row has which target is spec/loss.h.
#pragma once

#include <cstdint>
#include <span>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"

namespace sightline {

/// Natural log of sum over i of exp(logits[i]), ascending i, in double, the maximum taken out first.
/// All minus infinity, or none: minus infinity. A NaN or plus infinity: NaN.
[[nodiscard]] double log_sum_exp(std::span<const float> logits);

/// Sum of -log p(target) and how many targets it covers; the mean is loss_sum / num_targets, over all
/// micro-batches, never a mean of means.
struct CrossEntropy {
  double loss_sum = 0.0;
  std::int64_t num_targets = 0;
};

/// row_loss[i] = log_sum_exp(logits[i]) - logits[i, targets[i]]; 0 where targets[i] is -1 (no target).
/// The sum adds rows in ascending order, whatever the number of threads.
///   logits [num_rows, vocab_size], rows contiguous; targets [num_rows]; row_loss [num_rows]
/// Errors (kInvalidArgument): lengths that differ, a target outside [-1, vocab_size).
[[nodiscard]] Result<CrossEntropy> cross_entropy_forward(StridedView<const float, 2> logits,
                                                         std::span<const std::int32_t> targets,
                                                         std::span<double> row_loss, ThreadPool& pool);

}  // namespace sightline
