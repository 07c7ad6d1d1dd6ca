#include "sightline/generate/evaluate.h"

#include <algorithm>
#include <cmath>

#include "call_batch.h"
#include "logprobs.h"

namespace sightline {

namespace {

// One model over one window of the text.
class WindowRun {
 public:
  static Result<WindowRun> make(Model& model, std::int64_t context) {
    SIGHTLINE_TRY(KvCache cache, make_cache(model, {.context = context}));
    return WindowRun(model, std::move(cache));
  }

  void begin() { sequence_ = cache_.add_sequence(); }
  /// Feeds tokens of which `fed` came before; logits of all of them afterwards.
  Result<void> feed(std::int64_t fed, std::span<const TokenId> ids) {
    batch_.clear();
    SIGHTLINE_TRY(const std::int64_t row, batch_.add(sequence_, fed, ids, {}));
    for (std::int64_t i = 0; i < std::ssize(ids); ++i) batch_.want_logits(row + i);
    return batch_.run(*model_, cache_, {});
  }
  [[nodiscard]] std::span<const float> logits(std::int64_t i) const { return batch_.logits(i); }
  Result<void> end() { return cache_.remove_sequence(sequence_); }

 private:
  WindowRun(Model& model, KvCache cache) : model_(&model), cache_(std::move(cache)) {}

  Model* model_;
  KvCache cache_;
  SequenceId sequence_{};
  CallBatch batch_;
};

// Sums over targets; becomes means in the end.
class DivergenceSum {
 public:
  // Log-probabilities of all tokens at one place.
  void add(std::span<const double> q, std::span<const double> p, TokenId target) {
    double kl = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (const double x = std::exp(p[i]); x > 0) kl += x * (p[i] - q[i]);
    }
    sum_.reference_loss -= p[static_cast<std::size_t>(target)];
    sum_.mean_kl += kl;
    sum_.max_kl = std::max(sum_.max_kl, kl);
    const auto top = [](std::span<const double> of) { return std::ranges::max_element(of) - of.begin(); };
    sum_.same_top += top(q) == top(p) ? 1 : 0;
  }
  [[nodiscard]] Divergence mean(std::int64_t num_targets) const {
    Divergence out = sum_;
    for (double* x : {&out.reference_loss, &out.mean_kl, &out.same_top}) {
      *x /= static_cast<double>(num_targets);
    }
    return out;
  }

 private:
  Divergence sum_;
};

}  // namespace

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
  if (options.reference != nullptr && options.reference->spec().vocab_size != model.spec().vocab_size) {
    return fail(ErrorKind::kInvalidArgument, "evaluate_loss: the reference has {} tokens, the model {}",
                options.reference->spec().vocab_size, model.spec().vocab_size);
  }
  std::vector<WindowRun> runs;
  for (Model* each : {&model, options.reference}) {
    if (each == nullptr) continue;
    SIGHTLINE_TRY(WindowRun run, WindowRun::make(*each, context));
    runs.push_back(std::move(run));
  }

  EvalResult result;
  result.num_tokens = num_tokens;
  DivergenceSum divergence;
  std::vector<double> scratch, reference_scratch;  // log-probabilities of all tokens
  double sum = 0;
  for (std::int64_t begin = 0; begin < num_tokens; begin += context) {
    const std::int64_t length = std::min(context, num_tokens - begin);
    for (WindowRun& run : runs) run.begin();
    // The last token of a window predicts nothing in it and is not fed.
    for (std::int64_t fed = 0; fed + 1 < length; fed += chunk) {
      const std::int64_t n = std::min(chunk, length - 1 - fed);
      const auto at = static_cast<std::size_t>(begin + fed);
      for (WindowRun& run : runs) {
        SIGHTLINE_CHECK(run.feed(fed, ids.subspan(at, static_cast<std::size_t>(n))));
      }
      for (std::int64_t i = 0; i < n; ++i) {
        const TokenId target = ids[at + static_cast<std::size_t>(i) + 1];
        SIGHTLINE_TRY(const TokenLogprob entry, token_logprob(runs.front().logits(i), target, 0, scratch));
        result.nll.push_back(-*entry.logprob);
        sum += result.nll.back();
        if (runs.size() == 1) continue;
        SIGHTLINE_CHECK(token_logprob(runs.back().logits(i), target, 0, reference_scratch));
        divergence.add(scratch, reference_scratch, target);
      }
      if (on_progress && !on_progress(begin + fed + n, num_tokens)) {
        return fail(ErrorKind::kTryLater, "evaluate_loss: cancelled after {} of {} tokens", begin + fed + n,
                    num_tokens);
      }
    }
    for (WindowRun& run : runs) SIGHTLINE_CHECK(run.end());
  }
  result.num_targets = static_cast<std::int64_t>(result.nll.size());
  result.loss = sum / static_cast<double>(result.num_targets);
  result.perplexity = std::exp(result.loss);
  if (runs.size() > 1) result.divergence = divergence.mean(result.num_targets);
  return result;
}

}  // namespace sightline
