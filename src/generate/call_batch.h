// Collects what several sequences feed into one forward call.
#pragma once

#include <span>
#include <vector>

#include "sightline/base/aligned_buffer.h"
#include "sightline/generate/generate.h"

namespace sightline {

/// Arrays behind a ForwardBatch. Reused from call to call.
class CallBatch {
 public:
  void clear();

  /// Adds tokens of one sequence of which `num_before` are in the cache: positions num_before, num_before +
  /// 1, ... in one segment; `change` may alter them. Returns the batch row of the first. Errors
  /// (kInvalidArgument): a change that altered the number of tokens.
  Result<std::int64_t> add(SequenceId sequence, std::int64_t num_before, std::span<const TokenId> token_ids,
                           const std::function<Result<void>(CallCoords&)>& change);

  /// Asks for the logits of a row; rows must come in ascending order. Returns the index into the logits.
  std::int64_t want_logits(std::int64_t row);

  /// Runs the batch; logits of row i of want_logits' results are logits(i) afterwards.
  /// `specs` and `change_rows` as in Model::forward; null changes nothing.
  [[nodiscard]] Result<void> run(Model& model, KvCache& cache, std::span<const AttentionSpec> specs,
                                 const RowChange* change_rows = nullptr);
  [[nodiscard]] std::span<const float> logits(std::int64_t logit_idx) const;
  [[nodiscard]] std::int64_t num_tokens() const { return static_cast<std::int64_t>(token_ids_.size()); }

 private:
  std::vector<SequenceId> sequences_;
  std::vector<std::int64_t> offsets_{0};
  std::vector<TokenId> token_ids_;
  std::vector<TokenCoord> q_coords_, kv_coords_;
  std::vector<std::int64_t> q_rope_pos_, kv_rope_pos_;
  std::vector<std::int64_t> logit_rows_;
  AlignedBuffer<float> logits_;
  std::int64_t vocab_size_ = 0;
};

}  // namespace sightline
