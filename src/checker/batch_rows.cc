#include "checker/batch_rows.h"

#include <algorithm>

namespace sightline::checker {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Real tokens by the run of padding at either end of the row.
std::vector<bool> real_by_value(const TrainingBatch& batch, const std::vector<std::int64_t>& ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  std::vector<bool> real(ids.size(), true);
  if (!batch.pad_id) return real;
  std::int64_t begin = 0;
  while (begin < n && ids[at(begin)] == *batch.pad_id) real[at(begin++)] = false;
  std::int64_t end = n;
  while (end > begin && ids[at(end - 1)] == *batch.pad_id) real[at(--end)] = false;
  // The first of the run behind the text ends it.
  if (batch.eos_id == batch.pad_id && end > begin && end < n) real[at(end)] = true;
  return real;
}

}  // namespace

BatchRow batch_row(const TrainingBatch& batch, const BatchDeclaration& declaration, std::int64_t row_idx) {
  const auto part = [&](const std::vector<std::int64_t>& all) {
    if (all.empty()) return std::vector<std::int64_t>{};
    const auto begin = all.begin() + row_idx * batch.num_tokens;
    return std::vector<std::int64_t>(begin, begin + batch.num_tokens);
  };
  BatchRow row;
  row.ids = part(batch.input_ids);
  for (const std::int64_t x : part(batch.is_prompt)) row.is_prompt.push_back(x != 0 ? 1 : 0);
  const std::vector<std::int64_t> mask = part(batch.attention_mask), positions = part(batch.position_ids),
                                  segments = part(batch.segment_ids);
  const std::vector<bool> by_value = real_by_value(batch, row.ids);
  const bool ends_with_eos =
      segments.empty() && positions.empty() && batch.eos_id && uses(declaration.mask, MaskOp::kSegment);
  TokenCoord next;
  bool begins_document = true;
  std::int64_t last_real = -1;
  for (std::int64_t i = 0; i < batch.num_tokens; ++i) {
    TokenCoord coord = next;
    coord.valid = mask.empty() ? by_value[at(i)] : mask[at(i)] != 0;
    if (coord.valid) {
      if (last_real >= 0) {
        if (!segments.empty()) begins_document = segments[at(i)] != segments[at(last_real)];
        if (segments.empty() && !positions.empty())
          begins_document = positions[at(i)] <= positions[at(last_real)];
      }
      if (begins_document) {
        coord.segment = static_cast<std::int32_t>(row.num_documents++);
        coord.segment_start = coord.pos;
      }
      begins_document = ends_with_eos && row.ids[at(i)] == *batch.eos_id;
      next = coord;
      ++next.pos;
      last_real = i;
    }
    row.coords.push_back(coord);
  }
  return row;
}

std::vector<std::int64_t> expected_targets(const TrainingBatch& batch, const LossSpec& loss,
                                           const BatchRow& row, const LabelDeviation& deviation) {
  const auto flipped = [](auto value, bool flips, auto in, auto out) {
    if (!flips) return value;
    return value == in ? out : in;
  };
  LossSpec meant = loss;
  meant.next_document = flipped(loss.next_document, deviation.flips_next_document, NextDocumentScope::kIn,
                                NextDocumentScope::kOut);
  meant.prompt = flipped(loss.prompt, deviation.flips_prompt, PromptScope::kIn, PromptScope::kOut);
  std::vector<TokenCoord> coords = row.coords;
  if (deviation.asks_padding) {
    for (TokenCoord& coord : coords) coord.valid = true;
  }
  std::vector<std::int64_t> targets = loss_targets(meant, coords, row.is_prompt);
  for (std::int64_t& target : targets) {
    const std::int64_t id = target < 0 ? batch.ignore_index : row.ids[at(target)];
    target = deviation.ignores_pad_value && id == batch.pad_id ? batch.ignore_index : id;
  }
  for (int step = 0; step < deviation.later; ++step) {
    std::rotate(targets.begin(), targets.begin() + 1, targets.end());
    targets.back() = batch.ignore_index;
  }
  for (int step = 0; step > deviation.later; --step) {
    std::rotate(targets.begin(), targets.end() - 1, targets.end());
    targets.front() = batch.ignore_index;
  }
  return targets;
}

std::vector<std::int64_t> given_targets(const TrainingBatch& batch, const BatchDeclaration& declaration,
                                        std::int64_t row) {
  const auto begin = batch.labels.begin() + row * batch.num_tokens;
  std::vector<std::int64_t> targets(begin, begin + batch.num_tokens);
  if (!declaration.model_shifts) return targets;
  // The model compares its output at i with the label of i + 1; that of the first token is never used.
  std::rotate(targets.begin(), targets.begin() + 1, targets.end());
  targets.back() = batch.ignore_index;
  return targets;
}

}  // namespace sightline::checker
