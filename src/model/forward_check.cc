// What a forward call refuses before anything is touched.
#include <algorithm>
#include <utility>

#include "model/forward.h"

namespace sightline {

namespace {
constexpr const char* kName = "Model::forward";
}  // namespace

Result<void> ForwardCall::check(StridedView<float, 2> logits) const {
  const std::size_t num_sequences = batch_.sequences.size();
  const auto num_tokens = batch_.token_ids.size();
  const auto bad_size = [&](const char* what, std::size_t expected, std::size_t got) {
    return fail(ErrorKind::kInvalidArgument, "{}: {}: expected {} entries, got {}", kName, what, expected,
                got);
  };
  if (batch_.offsets.size() != num_sequences + 1) {
    return bad_size("offsets", num_sequences + 1, batch_.offsets.size());
  }
  for (std::size_t s = 0; s <= num_sequences; ++s) {
    const std::int64_t low = s == 0 ? 0 : batch_.offsets[s - 1];
    const std::int64_t high = s == 0 ? 0 : num_tokens_;
    if (batch_.offsets[s] >= low && batch_.offsets[s] <= high) continue;
    return fail(ErrorKind::kInvalidArgument, "{}: offsets[{}]: expected {} to {}, got {}", kName, s, low,
                high, batch_.offsets[s]);
  }
  if (batch_.offsets.back() != num_tokens_) {
    return fail(ErrorKind::kInvalidArgument, "{}: offsets end at {}, but there are {} tokens", kName,
                batch_.offsets.back(), num_tokens);
  }
  std::vector<SequenceId> sorted(batch_.sequences.begin(), batch_.sequences.end());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return fail(ErrorKind::kInvalidArgument, "{}: a sequence is given twice", kName);
  }
  if (batch_.q_coords.size() != num_tokens) return bad_size("q_coords", num_tokens, batch_.q_coords.size());
  for (const auto& [what, size] :
       {std::pair{"kv_coords", batch_.kv_coords.size()}, std::pair{"q_rope_pos", batch_.q_rope_pos.size()},
        std::pair{"kv_rope_pos", batch_.kv_rope_pos.size()}}) {
    if (size != 0 && size != num_tokens) return bad_size(what, num_tokens, size);
  }
  for (std::size_t i = 0; i < num_tokens; ++i) {
    if (batch_.token_ids[i] < 0 || batch_.token_ids[i] >= spec_.vocab_size) {
      return fail(ErrorKind::kInvalidArgument, "{}: token_ids[{}] = {} is not in [0, {})", kName, i,
                  batch_.token_ids[i], spec_.vocab_size);
    }
    if (spec_.num_learned_positions == 0 || !batch_.q_coords[i].valid) continue;
    const std::int64_t pos = batch_.q_rope_pos.empty() ? batch_.q_coords[i].pos : batch_.q_rope_pos[i];
    if (pos < 0 || pos >= spec_.num_learned_positions) {
      return fail(ErrorKind::kInvalidArgument, "{}: token {}: position {} is not in the table of {}", kName,
                  i, pos, spec_.num_learned_positions);
    }
  }
  std::int64_t last = -1;
  for (const std::int64_t row : batch_.logit_rows) {
    if (row <= last || row >= num_tokens_) {
      return fail(ErrorKind::kInvalidArgument,
                  "{}: logit_rows: {} after {}: expected ascending rows below {}", kName, row, last,
                  num_tokens_);
    }
    last = row;
  }
  const auto num_rows = static_cast<std::int64_t>(batch_.logit_rows.size());
  if (num_rows > 0 && (logits.shape[0] != num_rows || logits.shape[1] != spec_.vocab_size ||
                       logits.strides[1] != 1 || logits.data == nullptr)) {
    return fail(ErrorKind::kInvalidArgument,
                "{}: logits: expected [{}, {}] with contiguous rows, got [{}, {}]", kName, num_rows,
                spec_.vocab_size, logits.shape[0], logits.shape[1]);
  }
  if (specs_.empty()) return {};
  if (specs_.size() != spec_.layers.size()) return bad_size("specs", spec_.layers.size(), specs_.size());
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (specs_[i].heads == spec_.layers[i].attention.heads) continue;
    return fail(ErrorKind::kInvalidArgument, "{}: specs[{}]: its heads are not the model's", kName, i);
  }
  return {};
}

}  // namespace sightline
