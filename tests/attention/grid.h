// The batches that forward and backward are both held against: every score feature, every mask rule, a bias
// that hides.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attention/batch.h"

namespace sightline::test {

using NamedBatch = std::pair<std::string, Batch>;

/// Scales, softcaps, ALiBi, sinks, dropout, and all at once; two sequences, one of a single query.
std::vector<NamedBatch> every_score_feature();

/// A bias of N(0, 1), a quarter of it minus infinity; query 7 of head 1 sees nothing.
Batch bias_that_hides();

/// 260 tokens in three documents, some invalid, under every mask rule and compositions; owns what their
/// tables view.
class EveryMaskRule {
 public:
  explicit EveryMaskRule(const AttentionSpec& spec);
  EveryMaskRule(const EveryMaskRule&) = delete;
  [[nodiscard]] const std::vector<NamedBatch>& batches() const { return batches_; }

 private:
  std::vector<std::uint8_t> dense_;
  std::vector<std::int32_t> nodes_;
  std::vector<std::int32_t> parent_;
  std::vector<NamedBatch> batches_;
};

}  // namespace sightline::test
