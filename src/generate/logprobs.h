// Log-probabilities of one row of logits, and how many rows of logits one forward may ask for.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "sightline/generate/generate.h"

namespace sightline {

/// Logits held at once, at most 32 MiB: scoring every position of a long prompt is done in smaller chunks.
inline constexpr std::int64_t kMaxLogitValues = std::int64_t{8} << 20;

[[nodiscard]] inline std::int64_t max_logit_rows(std::int64_t vocab_size) {
  return std::max<std::int64_t>(1, kMaxLogitValues / vocab_size);
}

/// The error of a row whose logits leave no distribution: kInvalidContent, the weights are broken.
[[nodiscard]] tl::unexpected<Error> broken_logits(std::int64_t token, float logit);

/// The entry of token `id` under `logits`, with the `num_top` likeliest. `scratch` holds the
/// log-probabilities of all tokens afterwards and is reused between calls.
/// Errors: kInvalidContent where a logit is NaN or plus infinity, or none is a number.
[[nodiscard]] Result<TokenLogprob> token_logprob(std::span<const float> logits, TokenId id, int num_top,
                                                 std::vector<double>& scratch);

}  // namespace sightline
