// What a tokenizer is made of, as plain data: the fields of a GGUF file's tokenizer.* keys. It knows no
// file format; whoever reads the file fills it in. Checked when a Tokenizer is made of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

using TokenId = std::int32_t;

/// The values of `tokenizer.ggml.token_type`.
enum class TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never produced from user text
  kUserDefined = 4,  // matched as a whole, before anything else, in any text
  kUnused = 5,
  kByte = 6,  // <0xNN>
};

/// One tokenizer. The comment names the GGUF key (without `tokenizer.ggml.`); absent keys stay empty.
struct TokenizerSpec {
  std::string source = "tokenizer";  // file name, for messages
  std::string model;                 // model: "llama" (SentencePiece BPE) or "gpt2" (byte-level BPE)
  std::string pre;                   // pre: name of the pre-tokenizer; byte-level BPE needs it
  std::string override_pre;          // not a key: what the caller states in place of `pre`, if not empty
  std::vector<std::string> tokens;   // tokens; any bytes
  std::vector<float> scores;         // scores; SentencePiece BPE needs them
  std::vector<std::int32_t> types;   // token_type; empty: all normal
  std::vector<std::string> merges;   // merges, "left right"; byte-level BPE needs them
  // Ids are wide so that the reader passes on what the file says; the check is done here.
  std::optional<std::int64_t> bos_id;    // bos_token_id
  std::optional<std::int64_t> eos_id;    // eos_token_id
  std::optional<std::int64_t> eot_id;    // eot_token_id
  std::optional<std::int64_t> eom_id;    // eom_token_id
  std::optional<std::int64_t> unk_id;    // unknown_token_id
  std::optional<std::int64_t> pad_id;    // padding_token_id
  std::optional<bool> add_bos;           // add_bos_token; absent: yes for "llama" and for pre = llama-bpe
  std::optional<bool> add_eos;           // add_eos_token; absent: no
  std::optional<bool> add_space_prefix;  // add_space_prefix; absent: yes for "llama"
  std::optional<bool> remove_extra_whitespaces;  // remove_extra_whitespaces; true is refused (not supported)
};

/// Checks everything that can be wrong with `spec` and says which field is: array lengths, token types,
/// byte tokens, finite scores, special ids inside the vocabulary, merges (two parts, both parts and the
/// joined text in the vocabulary), repeated tokens, a known pre-tokenizer.
///
/// Errors: kInvalidContent, "SOURCE: tokenizer.ggml.FIELD[index]: expected ..., got ...".
/// Cost: linear in the bytes of the spec.
[[nodiscard]] Result<void> validate(const TokenizerSpec& spec);

}  // namespace sightline
