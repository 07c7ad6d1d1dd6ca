#include "sightline/generate/evaluate.h"

#include <algorithm>
#include <cmath>

#include "call_batch.h"
#include "logprobs.h"

namespace sightline {

Result<EvalResult> evaluate_loss(Model& model, std::span<const TokenId> ids, const EvalOptions& options,
                                 const std::function<bool(std::int64_t, std::int64_t)>& on_progress) {
  const std::int64_t context = options.context > 0 ? options.context : model.spec().context_length;
  const auto num_tokens = static_cast<std::int64_t>(ids.size());
  if (num_tokens < 2) {
    return fail(ErrorKind::kInvalidArgument, "evaluate_loss: {} tokens, at least 2 are needed", num_tokens);
  }
  if (context < 2 || options.chunk < 1) {
    return fail(ErrorKind::kInvalidArgument,
                "evaluate_loss: context = {} and chunk = {}, expected at least 2 and 1", context,
                options.chunk);
  }
  for (const TokenId id : ids) {
    if (id < 0 || id >= model.spec().vocab_size) {
      return fail(ErrorKind::kInvalidArgument, "evaluate_loss: token id {}, expected 0 to {}", id,
                  model.spec().vocab_size - 1);
    }
  }
  const std::int64_t chunk =
      options.step_by_step ? 1 : std::min(options.chunk, max_logit_rows(model.spec().vocab_size));
  SIGHTLINE_TRY(KvCache cache, make_cache(model, {.context = context}));

  EvalResult result;
  result.num_tokens = num_tokens;
  CallBatch batch;
  std::vector<double> scratch;
  double sum = 0;
  for (std::int64_t begin = 0; begin < num_tokens; begin += context) {
    const std::int64_t length = std::min(context, num_tokens - begin);
    const SequenceId sequence = cache.add_sequence();
    // The last token of a window predicts nothing in it and is not fed.
    for (std::int64_t fed = 0; fed + 1 < length; fed += chunk) {
      const std::int64_t n = std::min(chunk, length - 1 - fed);
      const auto at = static_cast<std::size_t>(begin + fed);
      batch.clear();
      SIGHTLINE_TRY(const std::int64_t row,
                    batch.add(sequence, fed, ids.subspan(at, static_cast<std::size_t>(n)), {}));
      for (std::int64_t i = 0; i < n; ++i) batch.want_logits(row + i);
      SIGHTLINE_CHECK(batch.run(model, cache, {}));
      for (std::int64_t i = 0; i < n; ++i) {
        const TokenId target = ids[at + static_cast<std::size_t>(i) + 1];
        SIGHTLINE_TRY(const TokenLogprob entry, token_logprob(batch.logits(i), target, 0, scratch));
        result.nll.push_back(-*entry.logprob);
        sum += result.nll.back();
      }
      if (on_progress && !on_progress(begin + fed + n, num_tokens)) {
        return fail(ErrorKind::kTryLater, "evaluate_loss: cancelled after {} of {} tokens", begin + fed + n,
                    num_tokens);
      }
    }
    SIGHTLINE_CHECK(cache.remove_sequence(sequence));
  }
  result.num_targets = static_cast<std::int64_t>(result.nll.size());
  result.loss = sum / static_cast<double>(result.num_targets);
  result.perplexity = std::exp(result.loss);
  return result;
}

}  // namespace sightline
