// The softmax of one query row of one head, with the sink. Forward and backward both take weights here.
#pragma once

#include <vector>

#include "attention_call.h"

namespace sightline::reference {

struct SoftmaxRow {
  std::vector<PairScore> pairs;  ///< [kv_len]
  std::vector<double> weights;   ///< [kv_len], before dropout, 0 where the pair does not count
  double sink_weight = 0;
  double lse = 0;
  bool is_empty = false;  ///< no key counts, or all that do have a score of minus infinity
};

SoftmaxRow softmax_row(const AttentionCall& call, int h, std::int64_t i, const std::vector<bool>& visible);

}  // namespace sightline::reference
