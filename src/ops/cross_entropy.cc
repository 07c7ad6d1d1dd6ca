#include "sightline/ops/cross_entropy.h"

#include <cmath>
#include <limits>

namespace sightline {

double log_sum_exp(std::span<const float> logits) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double max = -kInfinity;
  for (const float x : logits) {
    if (x > max) max = x;  // a NaN never wins; the sum below still meets it
  }
  // Plus infinity meets inf - inf = NaN below. An empty sum must not: -inf - -inf is NaN, too.
  const double shift = max == -kInfinity ? 0.0 : max;
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - shift);
  return shift + std::log(sum);
}

Result<CrossEntropy> cross_entropy_forward(StridedView<const float, 2> logits,
                                           std::span<const std::int32_t> targets, std::span<double> row_loss,
                                           ThreadPool& pool) {
  const std::int64_t num_rows = logits.shape[0];
  const std::int64_t vocab_size = logits.shape[1];
  if (std::ssize(targets) != num_rows || std::ssize(row_loss) != num_rows) {
    return fail(ErrorKind::kInvalidArgument,
                "cross_entropy_forward: logits have {} rows, targets {} and row_loss {} entries", num_rows,
                targets.size(), row_loss.size());
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < -1 || targets[i] >= vocab_size) {
      return fail(ErrorKind::kInvalidArgument,
                  "cross_entropy_forward: targets[{}] = {} is outside [-1, vocab_size = {})", i, targets[i],
                  vocab_size);
    }
  }
  pool.parallel_for(num_rows, [&](std::int64_t i, int) {
    const auto at = static_cast<std::size_t>(i);
    const std::int32_t target = targets[at];
    if (target < 0) {
      row_loss[at] = 0.0;
      return;
    }
    const std::span<const float> row(&logits(i, 0), static_cast<std::size_t>(vocab_size));
    row_loss[at] = log_sum_exp(row) - static_cast<double>(row[static_cast<std::size_t>(target)]);
  });
  CrossEntropy total;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    total.loss_sum += row_loss[i];
    ++total.num_targets;
  }
  return total;
}

}  // namespace sightline
