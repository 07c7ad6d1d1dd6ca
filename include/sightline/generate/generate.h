// Text from a model: prompts of any lengths in one mixed batch, prefilled in chunks, decoded together.
// What comes out of a prompt does not depend on the other prompts, the chunks or the threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/generate/sampler.h"
#include "sightline/model/model.h"
#include "sightline/spec/call.h"

namespace sightline {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 128;    ///< new tokens a prompt, at most
  std::vector<std::string> stops;   ///< stop strings; cut from the text
  std::optional<int> num_logprobs;  ///< report log-probabilities, with this many of the likeliest
  bool echo = false;                ///< the prompt is part of `text` and of `logprobs`
  bool ignore_end = false;          ///< go on after an end-of-generation token
  std::int64_t chunk = 512;         ///< tokens of one forward; each open sequence feeds at least one
  std::int64_t context = 0;         ///< tokens a sequence may hold; 0: the model's context_length
  StorageType key_type = StorageType::kF32;
  StorageType value_type = StorageType::kF32;
  int page_size = 64;
};

enum class FinishReason : std::uint8_t { kEnd, kStop, kLength, kContext, kCancelled };
[[nodiscard]] std::string_view to_string(FinishReason reason);

struct AlternativeLogprob {
  TokenId id = 0;
  double logprob = 0;
};
/// Natural log-probability of one token given all before it; the first token of a prompt has none.
struct TokenLogprob {
  TokenId id = 0;
  std::optional<double> logprob;
  std::vector<AlternativeLogprob> top;  ///< likeliest first, ties by id
};

struct GenerateResult {
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> ids;  ///< new tokens, an end token included
  std::string text;          ///< of the new tokens (after the prompt's under echo), special tokens left out
  FinishReason reason = FinishReason::kLength;
  std::vector<TokenLogprob> logprobs;
};

struct GenerateHooks {
  /// New text of prompt `prompt_idx`, whole characters, as it becomes certain.
  std::function<void(std::size_t prompt_idx, std::string_view text)> on_text;
  /// After each forward: tokens prefilled and generated so far, of all prompts.
  std::function<void(std::int64_t num_prefilled, std::int64_t num_prompt, std::int64_t num_new)> on_progress;
  /// Asked after each forward; true ends every sequence with kCancelled.
  std::function<bool()> cancelled;
  /// Changes the coordinates of a call (a planted fault); an error ends the run.
  std::function<Result<void>(CallCoords&)> change_call;
  /// Attention specs in place of the model's own (a planted fault); empty: the model's.
  std::vector<AttentionSpec> specs;
  /// Changes rows within each forward (another arithmetic, misplaced weights); empty: nothing.
  RowChange change_rows;
  /// Scores each token of a prompt but the first by the row after it in place of the row before (what a
  /// program gives that pairs them one row late). Only with max_tokens 0.
  bool scores_late = false;
};

/// Generates after each prompt. With max_tokens 0 it only scores the prompts.
/// Errors: kInvalidArgument (options, an empty prompt, ids outside the vocabulary, a prompt longer than the
/// context), kInvalidContent (logits that are not finite), kOutOfMemory.
[[nodiscard]] Result<std::vector<GenerateResult>> generate(Model& model, const Tokenizer& tokenizer,
                                                           std::span<const std::vector<TokenId>> prompts,
                                                           const GenerateOptions& options,
                                                           const GenerateHooks& hooks = {});

/// A cache for `model` with the page size, types and context of `options`; shared by tests and apps. `specs`:
/// of the layers in place of the model's own; a cache rotates keys and frees windows by them, so a forward
/// with other specs needs a cache of the same. Errors: those of KvCache::create.
[[nodiscard]] Result<KvCache> make_cache(const Model& model, const GenerateOptions& options,
                                         const std::vector<AttentionSpec>& specs = {});

}  // namespace sightline
