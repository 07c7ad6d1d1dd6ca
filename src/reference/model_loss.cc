#include <algorithm>
#include <cmath>

#include "sightline/reference/model.h"

namespace sightline::reference {

Result<LossOutputs> mean_cross_entropy(const LossSpec& loss, const ModelInputs& inputs,
                                       std::span<const std::uint8_t> is_prompt,
                                       std::span<const double> logits) {
  SIGHTLINE_CHECK(validate(loss));
  const std::size_t num_tokens = inputs.token_ids.size();
  if (inputs.coords.size() != num_tokens || (!is_prompt.empty() && is_prompt.size() != num_tokens) ||
      num_tokens == 0 || logits.empty() || logits.size() % num_tokens != 0) {
    return fail(ErrorKind::kInvalidArgument,
                "mean_cross_entropy: {} token ids, {} coords, {} is_prompt, {} logits", num_tokens,
                inputs.coords.size(), is_prompt.size(), logits.size());
  }
  const std::size_t vocab_size = logits.size() / num_tokens;
  for (std::size_t i = 0; i < num_tokens; ++i) {
    const std::int32_t id = inputs.token_ids[i];
    if (id >= 0 && static_cast<std::size_t>(id) < vocab_size) continue;
    return fail(ErrorKind::kInvalidArgument, "mean_cross_entropy: token_ids[{}] = {} is outside [0, {})", i,
                id, vocab_size);
  }
  const std::vector<std::int64_t> targets = loss_targets(loss, inputs.coords, is_prompt);
  LossOutputs outputs;
  outputs.num_targets = std::ranges::count_if(targets, [](std::int64_t row) { return row >= 0; });
  outputs.d_logits.resize(logits.size(), 0.0);
  const auto count = static_cast<double>(outputs.num_targets);
  for (std::size_t i = 0; i < num_tokens; ++i) {
    if (targets[i] < 0) continue;
    const auto target_id = static_cast<std::size_t>(inputs.token_ids[static_cast<std::size_t>(targets[i])]);
    const std::span<const double> row = logits.subspan(i * vocab_size, vocab_size);
    const double largest = *std::ranges::max_element(row);
    double sum = 0;
    for (const double logit : row) sum += std::exp(logit - largest);
    const double lse = largest + std::log(sum);
    outputs.loss += (lse - row[target_id]) / count;
    for (std::size_t c = 0; c < vocab_size; ++c) {
      outputs.d_logits[i * vocab_size + c] = (std::exp(row[c] - lse) - (c == target_id ? 1 : 0)) / count;
    }
  }
  return outputs;
}

}  // namespace sightline::reference
