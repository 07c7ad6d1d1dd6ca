#include "call_batch.h"

#include "sightline/spec/mask.h"

namespace sightline {

void CallBatch::clear() {
  sequences_.clear();
  offsets_.assign(1, 0);
  token_ids_.clear();
  q_coords_.clear();
  kv_coords_.clear();
  q_rope_pos_.clear();
  kv_rope_pos_.clear();
  logit_rows_.clear();
}

Result<std::int64_t> CallBatch::add(SequenceId sequence, std::int64_t num_before,
                                    std::span<const TokenId> token_ids,
                                    const std::function<Result<void>(CallCoords&)>& change) {
  const auto n = static_cast<std::int64_t>(token_ids.size());
  CallCoords call = call_coords(num_before, coords_range(num_before, num_before + n));
  if (change) SIGHTLINE_CHECK(change(call));
  if (call.q_coords.size() != token_ids.size() || call.kv_coords.size() != token_ids.size() ||
      call.q_rope_pos.size() != token_ids.size() || call.kv_rope_pos.size() != token_ids.size()) {
    return fail(ErrorKind::kInvalidArgument,
                "generate: a changed call has {} query coordinates for {} tokens", call.q_coords.size(), n);
  }
  const std::int64_t first_row = num_tokens();
  sequences_.push_back(sequence);
  token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
  q_coords_.insert(q_coords_.end(), call.q_coords.begin(), call.q_coords.end());
  kv_coords_.insert(kv_coords_.end(), call.kv_coords.begin(), call.kv_coords.end());
  q_rope_pos_.insert(q_rope_pos_.end(), call.q_rope_pos.begin(), call.q_rope_pos.end());
  kv_rope_pos_.insert(kv_rope_pos_.end(), call.kv_rope_pos.begin(), call.kv_rope_pos.end());
  offsets_.push_back(num_tokens());
  return first_row;
}

std::int64_t CallBatch::want_logits(std::int64_t row) {
  logit_rows_.push_back(row);
  return static_cast<std::int64_t>(logit_rows_.size()) - 1;
}

Result<void> CallBatch::run(Model& model, KvCache& cache, std::span<const AttentionSpec> specs,
                            const RowChange* change_rows) {
  vocab_size_ = model.spec().vocab_size;
  const auto num_rows = static_cast<std::int64_t>(logit_rows_.size());
  logits_.reserve_discard(static_cast<std::size_t>(num_rows * vocab_size_));
  const ForwardBatch batch{.sequences = sequences_,
                           .offsets = offsets_,
                           .token_ids = token_ids_,
                           .q_coords = q_coords_,
                           .kv_coords = kv_coords_,
                           .q_rope_pos = q_rope_pos_,
                           .kv_rope_pos = kv_rope_pos_,
                           .logit_rows = logit_rows_,
                           .change_rows = change_rows};
  return model.forward(batch, cache, dense_view<float, 2>(logits_.data(), {num_rows, vocab_size_}), specs);
}

std::span<const float> CallBatch::logits(std::int64_t logit_idx) const {
  return logits_.span().subspan(static_cast<std::size_t>(logit_idx * vocab_size_),
                                static_cast<std::size_t>(vocab_size_));
}

}  // namespace sightline
