#include "checker/loss_terms.h"

#include <algorithm>
#include <cmath>

#include "checker/rounding.h"

namespace sightline::checker {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr double kMargin = 8.0;

// One target: where its logits stand, which token it is, and how much it counts.
struct Target {
  std::int64_t position = 0;  // row * num_tokens + token
  std::int64_t token = 0;
  double weight = 0;
};

// Targets of each row, not weighed yet.
std::vector<std::vector<Target>> targets_of_rows(const LossObservation& o, const LossDeviation& deviation) {
  std::vector<std::vector<Target>> rows(at(o.num_rows));
  const std::int64_t ahead = o.model_shifts ? deviation.shift : deviation.shift - 1;
  for (std::int64_t r = 0; r < o.num_rows; ++r) {
    for (std::int64_t i = 0; i < o.num_tokens; ++i) {
      if (i + ahead < 0 || i + ahead >= o.num_tokens) continue;
      const std::size_t label_idx = at(r * o.num_tokens + i + ahead);
      std::int64_t token = o.labels[label_idx];
      if (token == o.ignore_index && deviation.counts_ignored) token = o.input_ids[label_idx];
      if (token == o.ignore_index || token == deviation.ignored_value) continue;
      rows[at(r)].push_back({r * o.num_tokens + i, token, 0});
    }
  }
  return rows;
}

std::int64_t micro_batch_of(const LossObservation& o, std::int64_t row) {
  return o.micro_batch.empty() ? 0 : o.micro_batch[at(row)];
}

void weigh(const LossObservation& o, const LossDeviation& deviation, std::vector<std::vector<Target>>& rows) {
  const std::int64_t num_micro = o.micro_batch.empty() ? 1 : *std::ranges::max_element(o.micro_batch) + 1;
  std::vector<double> of_micro(at(num_micro), 0);
  double all = 0;
  for (std::int64_t r = 0; r < o.num_rows; ++r) {
    const auto count = static_cast<double>(rows[at(r)].size());
    of_micro[at(micro_batch_of(o, r))] += count;
    all += count;
  }
  const auto micro = static_cast<double>(num_micro);
  const std::int64_t unasked = o.model_shifts ? 1 : 0;
  const auto positions = static_cast<double>(o.num_rows * (o.num_tokens - unasked));
  for (std::int64_t r = 0; r < o.num_rows; ++r) {
    const double own = of_micro[at(micro_batch_of(o, r))];
    const auto row = static_cast<double>(rows[at(r)].size());
    double divisor = all;
    switch (deviation.mean) {
      case LossMean::kAllTargets:
        break;
      case LossMean::kMicroMeans:
        divisor = own * micro;
        break;
      case LossMean::kRowMeans:
        divisor = row * static_cast<double>(o.num_rows);
        break;
      case LossMean::kMicroSum:
        divisor = own;
        break;
      case LossMean::kDividedTwice:
        divisor = all * micro;
        break;
      case LossMean::kPositions:
        divisor = positions;
        break;
      case LossMean::kSum:
        divisor = 1;
        break;
    }
    for (Target& target : rows[at(r)]) target.weight = deviation.factor / divisor;
  }
}

// Logits of one position, and the largest size that their sums pass through.
struct Logits {
  std::vector<double> values;
  double size = 0;
};

Logits logits_at(const LossObservation& o, std::int64_t position) {
  Logits logits;
  for (std::int64_t t = 0; t < o.vocab_size; ++t) {
    double x = 0, size = 0;
    if (o.logits.empty()) {
      for (std::int64_t c = 0; c < o.hidden_dim; ++c) {
        const double term = o.hidden[at(position * o.hidden_dim + c)] * o.head[at(t * o.hidden_dim + c)];
        x += term;
        size += std::abs(term);
      }
    } else {
      x = o.logits[at(position * o.vocab_size + t)];
      size = std::abs(x);
    }
    logits.values.push_back(x);
    logits.size = std::max(logits.size, size);
  }
  return logits;
}

}  // namespace

LossPrediction predict_loss(const LossObservation& o, const LossDeviation& deviation) {
  std::vector<std::vector<Target>> rows = targets_of_rows(o, deviation);
  weigh(o, deviation, rows);
  LossPrediction prediction;
  if (!o.d_head.empty()) prediction.d_head.resize(o.d_head.size(), 0.0);
  std::vector<double> sizes(prediction.d_head.size(), 0.0);
  const double unit = kMargin * unit_roundoff(o.type);
  double largest = 0;
  for (const std::vector<Target>& row : rows) {
    for (const Target& target : row) {
      const Logits logits = logits_at(o, target.position);
      const double top = *std::ranges::max_element(logits.values);
      double sum = 0;
      for (const double x : logits.values) sum += std::exp(x - top);
      const double nll = top + std::log(sum) - logits.values[at(target.token)];
      prediction.loss += target.weight * nll;
      prediction.loss_bound += unit * std::abs(target.weight) * (1 + nll + 2 * logits.size);
      largest = std::max(largest, logits.size);
      ++prediction.num_targets;
      if (prediction.d_head.empty()) continue;
      for (std::int64_t t = 0; t < o.vocab_size; ++t) {
        const double d = std::exp(logits.values[at(t)] - top) / sum - (t == target.token ? 1.0 : 0.0);
        for (std::int64_t c = 0; c < o.hidden_dim; ++c) {
          const double term = target.weight * d * o.hidden[at(target.position * o.hidden_dim + c)];
          prediction.d_head[at(t * o.hidden_dim + c)] += term;
          sizes[at(t * o.hidden_dim + c)] += std::abs(term);
        }
      }
    }
  }
  // A gradient rounds at the size of its neighbours, and with its logits.
  if (!sizes.empty()) prediction.d_head_bound = unit * (1 + largest) * *std::ranges::max_element(sizes);
  prediction.loss_bound = std::max(prediction.loss_bound, 1e-30);
  prediction.d_head_bound = std::max(prediction.d_head_bound, 1e-30);
  return prediction;
}

}  // namespace sightline::checker
