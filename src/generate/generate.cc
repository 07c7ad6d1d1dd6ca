// The generation loop: every forward takes what each open sequence has to feed, prompt chunk or last token.
#include "sightline/generate/generate.h"

#include <algorithm>
#include <utility>

#include "call_batch.h"
#include "logprobs.h"
#include "sightline/generate/stop.h"

namespace sightline {

namespace {

/// One prompt on its way.
struct Sequence {
  SequenceId id = 0;
  std::vector<TokenId> tokens;  // prompt, then new tokens
  std::int64_t num_fed = 0;     // tokens in the cache
  Sampler sampler;
  Detokenizer detokenizer;
  StopMatcher stops;
  GenerateResult result;
  bool done = false;
  // Of the call being built:
  std::int64_t num_feeding = 0;
  std::int64_t first_logit = -1;  // logits of rows first_logit_row .. end of this sequence's part
  std::int64_t first_logit_row = 0;
};

/// Sequences that run together. More would not be faster, and each holds its cache.
constexpr int kMaxSequencesPerCall = 256;

class Run {
 public:
  Run(Model& model, const Tokenizer& tokenizer, const GenerateOptions& options, const GenerateHooks& hooks)
      : model_(model), tokenizer_(tokenizer), options_(options), hooks_(hooks) {}

  Result<std::vector<GenerateResult>> operator()(std::span<const std::vector<TokenId>> prompts) {
    SIGHTLINE_CHECK(validate_all(prompts));
    SIGHTLINE_TRY(cache_, make_cache_or_none());
    for (const auto& prompt : prompts) open(prompt);
    while (std::ranges::any_of(sequences_, [](const Sequence& s) { return !s.done; })) {
      if (hooks_.cancelled && hooks_.cancelled()) {
        for (auto& s : sequences_) {
          if (!s.done) SIGHTLINE_CHECK(finish(s, FinishReason::kCancelled));
        }
        break;
      }
      SIGHTLINE_CHECK(step());
    }
    std::vector<GenerateResult> results;
    for (auto& s : sequences_) results.push_back(std::move(s.result));
    return results;
  }

 private:
  Result<std::optional<KvCache>> make_cache_or_none() {
    SIGHTLINE_TRY(KvCache cache, make_cache(model_, options_, hooks_.specs));
    return std::optional<KvCache>(std::move(cache));
  }

  Result<void> validate_all(std::span<const std::vector<TokenId>> prompts) {
    SIGHTLINE_CHECK(validate(options_.sampling));
    SIGHTLINE_CHECK(validate_stops(options_.stops));
    context_ = options_.context > 0 ? options_.context : model_.spec().context_length;
    if (options_.chunk < 1) {
      return fail(ErrorKind::kInvalidArgument, "generate: chunk = {}, expected 1 or more", options_.chunk);
    }
    if (options_.max_tokens < 0) {
      return fail(ErrorKind::kInvalidArgument, "generate: max_tokens = {}, expected 0 or more",
                  options_.max_tokens);
    }
    if (options_.num_logprobs &&
        (*options_.num_logprobs < 0 || *options_.num_logprobs > model_.spec().vocab_size)) {
      return fail(ErrorKind::kInvalidArgument,
                  "generate: num_logprobs = {}, expected 0 to the {} tokens of the vocabulary",
                  *options_.num_logprobs, model_.spec().vocab_size);
    }
    if (model_.spec().num_learned_positions > 0 && context_ > model_.spec().num_learned_positions) {
      return fail(ErrorKind::kInvalidArgument,
                  "generate: context = {}, but the model has {} learned positions", context_,
                  model_.spec().num_learned_positions);
    }
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (prompts[i].empty())
        return fail(ErrorKind::kInvalidArgument, "generate: prompt {} holds no token", i);
      if (std::ssize(prompts[i]) > context_) {
        return fail(ErrorKind::kInvalidArgument,
                    "generate: prompt {} has {} tokens, more than the context of {}", i, prompts[i].size(),
                    context_);
      }
      for (const TokenId id : prompts[i]) {
        if (id < 0 || id >= model_.spec().vocab_size) {
          return fail(ErrorKind::kInvalidArgument, "generate: prompt {} holds token id {}, expected 0 to {}",
                      i, id, model_.spec().vocab_size - 1);
        }
      }
    }
    return {};
  }

  void open(const std::vector<TokenId>& prompt) {
    Sequence s{.id = cache_->add_sequence(),
               .tokens = prompt,
               .sampler = Sampler(options_.sampling),
               .detokenizer = Detokenizer(tokenizer_),
               .stops = StopMatcher(options_.stops),
               .result = {}};
    s.result.prompt_ids = prompt;
    std::string text;
    for (const TokenId id : prompt) text += s.detokenizer.push(id);
    if (scores_prompt()) s.result.logprobs.push_back({prompt.front(), std::nullopt, {}});
    sequences_.push_back(std::move(s));
    if (options_.echo) say(sequences_.back(), text);
    num_prompt_ += std::ssize(prompt);
  }

  [[nodiscard]] bool scores_prompt() const { return options_.echo && options_.num_logprobs.has_value(); }

  /// One forward over the open sequences, first come, first served. Those left over hold no cache yet.
  Result<void> step() {
    batch_.clear();
    std::int64_t budget = options_.chunk;
    int num_fed = 0;
    std::int64_t logit_budget = max_logit_rows(model_.spec().vocab_size);
    for (auto& s : sequences_) {
      s.num_feeding = 0;
      if (s.done || logit_budget <= 0 || num_fed == kMaxSequencesPerCall) continue;
      SIGHTLINE_CHECK(feed(s, budget, logit_budget));
      ++num_fed;
    }
    SIGHTLINE_CHECK(
        batch_.run(model_, *cache_, hooks_.specs, hooks_.change_rows ? &hooks_.change_rows : nullptr));
    for (auto& s : sequences_) {
      if (s.done || s.num_feeding == 0) continue;
      num_prefilled_ +=
          std::clamp<std::int64_t>(std::ssize(s.result.prompt_ids) - s.num_fed, 0, s.num_feeding);
      s.num_fed += s.num_feeding;
      if (s.first_logit >= 0) SIGHTLINE_CHECK(take(s));
    }
    if (hooks_.on_progress) hooks_.on_progress(num_prefilled_, num_prompt_, num_new_);
    return {};
  }

  /// Adds a sequence's next tokens to the call: at least one, so that every call ends.
  Result<void> feed(Sequence& s, std::int64_t& budget, std::int64_t& logit_budget) {
    const std::int64_t pending = std::ssize(s.tokens) - s.num_fed;
    const bool scores = scores_prompt() && s.num_fed < std::ssize(s.result.prompt_ids);
    std::int64_t n = std::min(pending, std::max<std::int64_t>(budget, 1));
    if (scores) n = std::min(n, std::max<std::int64_t>(logit_budget, 1));
    budget -= n;
    s.num_feeding = n;
    s.first_logit = -1;
    SIGHTLINE_TRY(const std::int64_t row,
                  batch_.add(s.id, s.num_fed,
                             std::span(s.tokens).subspan(static_cast<std::size_t>(s.num_fed),
                                                         static_cast<std::size_t>(n)),
                             hooks_.change_call));
    const bool reaches_end = n == pending;
    const std::int64_t num_rows = scores ? n : (reaches_end ? 1 : 0);
    logit_budget -= num_rows;
    for (std::int64_t i = n - num_rows; i < n; ++i) {
      const std::int64_t logit = batch_.want_logits(row + i);
      if (s.first_logit < 0) {
        s.first_logit = logit;
        s.first_logit_row = s.num_fed + i;
      }
    }
    return {};
  }

  /// Reads the logits of a call: scores known tokens, samples after the last.
  Result<void> take(Sequence& s) {
    for (std::int64_t position = s.first_logit_row; position < s.num_fed; ++position) {
      const auto logits = batch_.logits(s.first_logit + position - s.first_logit_row);
      if (hooks_.scores_late && position > 0) {
        SIGHTLINE_CHECK(record(s, logits, s.tokens[static_cast<std::size_t>(position)]));
      }
      if (position + 1 < std::ssize(s.tokens)) {
        if (!hooks_.scores_late)
          SIGHTLINE_CHECK(record(s, logits, s.tokens[static_cast<std::size_t>(position + 1)]));
        continue;
      }
      if (options_.max_tokens == 0) return finish(s, FinishReason::kLength);
      SIGHTLINE_TRY(const TokenId id, s.sampler.sample(logits, s.tokens));
      SIGHTLINE_CHECK(record(s, logits, id));
      return accept(s, id);
    }
    return {};
  }

  Result<void> record(Sequence& s, std::span<const float> logits, TokenId id) {
    if (!options_.num_logprobs) return {};
    SIGHTLINE_TRY(s.result.logprobs.emplace_back(),
                  token_logprob(logits, id, *options_.num_logprobs, scratch_));
    return {};
  }

  Result<void> accept(Sequence& s, TokenId id) {
    ++num_new_;
    s.result.ids.push_back(id);
    s.tokens.push_back(id);
    if (tokenizer_.is_end(id) && !options_.ignore_end) return finish(s, FinishReason::kEnd);
    say(s, s.stops.push(s.detokenizer.push(id)));
    if (s.stops.stopped()) return finish(s, FinishReason::kStop);
    if (std::ssize(s.result.ids) >= options_.max_tokens) return finish(s, FinishReason::kLength);
    if (s.num_fed >= context_) return finish(s, FinishReason::kContext);
    return {};
  }

  Result<void> finish(Sequence& s, FinishReason reason) {
    if (!s.stops.stopped()) {
      say(s, s.stops.push(s.detokenizer.flush()));
      say(s, s.stops.flush());
    }
    s.result.reason = reason;
    s.done = true;
    return cache_->remove_sequence(s.id);
  }

  void say(Sequence& s, std::string_view text) {
    if (text.empty()) return;
    s.result.text += text;
    if (hooks_.on_text) hooks_.on_text(static_cast<std::size_t>(&s - sequences_.data()), text);
  }

  Model& model_;
  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  const GenerateHooks& hooks_;
  std::int64_t context_ = 0;
  std::optional<KvCache> cache_;
  std::vector<Sequence> sequences_;
  CallBatch batch_;
  std::vector<double> scratch_;
  std::int64_t num_prompt_ = 0, num_prefilled_ = 0, num_new_ = 0;
};

}  // namespace

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEnd:
      return "end";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

Result<KvCache> make_cache(const Model& model, const GenerateOptions& options,
                           const std::vector<AttentionSpec>& specs) {
  const std::int64_t context = options.context > 0 ? options.context : model.spec().context_length;
  return KvCache::create(specs.empty() ? model.attention_specs() : specs, {.page_size = options.page_size,
                                                                           .key_type = options.key_type,
                                                                           .value_type = options.value_type,
                                                                           .rope_length = context});
}

Result<std::vector<GenerateResult>> generate(Model& model, const Tokenizer& tokenizer,
                                             std::span<const std::vector<TokenId>> prompts,
                                             const GenerateOptions& options, const GenerateHooks& hooks) {
  return Run(model, tokenizer, options, hooks)(prompts);
}

}  // namespace sightline
