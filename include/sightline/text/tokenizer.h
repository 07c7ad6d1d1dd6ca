// Text to token ids and back. Control tokens come from text only where the caller says so.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/text/vocabulary.h"

namespace sightline {

struct EncodeOptions {
  bool add_special = true;     // begin- and end-of-text tokens as the tokenizer's own settings say
  bool parse_special = false;  // control tokens written out in the text become their ids
};

/// A stretch of text. Control tokens are looked for inside stretches of adjacent runs with
/// `parse_special` only; otherwise the borders between runs do not exist.
struct TextRun {
  std::string text;
  bool parse_special = false;
};

/// An immutable tokenizer; cheap to copy (shared), safe to use from several threads.
class Tokenizer {
 public:
  /// From the fields of a GGUF file. Errors: those of validate().
  [[nodiscard]] static Result<Tokenizer> from_spec(TokenizerSpec spec);

  /// From the texts of a Hugging Face tokenizer.json (model type BPE) and, if there is one, of the
  /// tokenizer_config.json beside it (names of the special tokens, and what it states about tokens around a
  /// text and a blank before it). `source` names it in messages. Errors: kInvalidContent, for anything
  /// malformed, over a limit, or that we do not implement
  /// ("unsupported").
  [[nodiscard]] static Result<Tokenizer> from_json(std::string_view tokenizer_json,
                                                   std::string_view tokenizer_config_json = {},
                                                   std::string_view source = "tokenizer.json");

  /// The ids of `text`, which must be UTF-8 (zero bytes are allowed).
  ///
  /// Errors: kInvalidContent for invalid UTF-8, with the byte offset.
  /// Cost: near linear in the text's bytes, constant stack. Deterministic.
  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  /// The ids of the joined runs: as encode() of the joined text, but a control token is recognised only where
  /// it lies wholly in runs with `parse_special`.
  [[nodiscard]] Result<std::vector<TokenId>> encode_runs(std::span<const TextRun> runs,
                                                         bool add_special) const;

  /// The text of `ids`. A SentencePiece tokenizer's leading blank is dropped once, at the start.
  /// With `skip_special` control tokens give nothing, otherwise their names. The result need not be
  /// UTF-8 when the ids are not; see Detokenizer.
  /// Errors: kInvalidArgument for an id outside the vocabulary.
  [[nodiscard]] Result<std::string> decode(std::span<const TokenId> ids, bool skip_special = true) const;

  /// The bytes that one id stands for inside a text, with no trimming: for `is_special` ids the name.
  /// Empty for ids outside the vocabulary.
  [[nodiscard]] std::string_view token_text(TokenId id) const;
  /// Control or unknown token.
  [[nodiscard]] bool is_special(TokenId id) const;
  [[nodiscard]] std::int32_t vocab_size() const;
  /// The id whose name in the vocabulary (not its bytes) is `name`, or -1.
  [[nodiscard]] TokenId find_token(std::string_view name) const;

  /// -1 where there is none.
  [[nodiscard]] TokenId bos_id() const;
  [[nodiscard]] TokenId eos_id() const;
  [[nodiscard]] TokenId unk_id() const;
  [[nodiscard]] TokenId pad_id() const;
  [[nodiscard]] bool adds_bos() const;
  [[nodiscard]] bool adds_eos() const;
  /// Ids that end a generation: eos, eot, eom and control tokens with the names that models use for them.
  /// Sorted.
  [[nodiscard]] std::span<const TokenId> end_ids() const;
  [[nodiscard]] bool is_end(TokenId id) const;
  /// One line about what this is: "byte-level BPE, pre-tokenizer smollm, 49152 tokens".
  [[nodiscard]] std::string describe() const;

  /// `text` with `mark` put before each byte where a control token's name begins. ChatTemplate keeps control
  /// tokens out of messages with it.
  [[nodiscard]] std::string protect(std::string_view text, std::string_view mark) const;

  struct Impl;

 private:
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Turns ids into text as they come: each call returns only whole UTF-8 characters and keeps the rest.
/// The pieces joined are decode() of all ids, with each maximal invalid part replaced by U+FFFD.
class Detokenizer {
 public:
  /// `at_start` false: the ids go on a text that is there already, so a leading blank stays.
  explicit Detokenizer(Tokenizer tokenizer, bool skip_special = true, bool at_start = true);
  /// What became whole with `id`; an id outside the vocabulary gives U+FFFD.
  [[nodiscard]] std::string push(TokenId id);
  /// What is left: U+FFFD if a character is incomplete, else nothing. Starts anew.
  [[nodiscard]] std::string flush();

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  bool starts_text_;
  bool at_start_;
  std::string held_;
};

}  // namespace sightline
