// A checked TokenizerSpec, indexed: what validate() finds out on its way and Tokenizer::from_spec goes on
// with.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sightline/text/vocabulary.h"
#include "text/merge.h"
#include "text/pre_tokenizer.h"

namespace sightline::text {

constexpr std::size_t kMaxVocabSize = std::size_t{1} << 24;
/// Limits on what the matcher of control and user-defined tokens holds (its automaton takes some 40 bytes
/// each).
constexpr std::size_t kMaxAddedTokenBytes = 4096;
constexpr std::size_t kMaxAddedTokensBytes = std::size_t{4} << 20;

/// The views point into the spec, which must stay.
struct VocabularyIndex {
  bool is_byte_level = false;
  const PreTokenizerRow* pre = nullptr;  // byte-level BPE only
  std::vector<TokenType> types;          // one a token
  std::unordered_map<std::string_view, TokenId> ids;
  /// Per byte, the id that stands for it (<0xNN> or the letter of byte-level BPE), or -1.
  std::array<TokenId, 256> byte_ids{};
  MergeTable merges;
};

[[nodiscard]] Result<VocabularyIndex> index_vocabulary(const TokenizerSpec& spec);

/// The letter that byte-level BPE writes for a byte, as UTF-8 (GPT-2's bytes_to_unicode), and back: the byte
/// of a code point, or -1.
[[nodiscard]] std::string byte_letter(unsigned byte);
[[nodiscard]] int byte_of_letter(char32_t letter);

/// SentencePiece's blank, U+2581.
constexpr std::string_view kBlankLetter = "\xE2\x96\x81";

/// What a token's name stands for in a text: control, unknown and user-defined ones for themselves.
[[nodiscard]] std::string token_bytes(std::string_view name, TokenType type, bool is_byte_level);

/// Text of a file for a message: short and printable, in quotes.
[[nodiscard]] std::string quoted(std::string_view text);

/// The byte of "<0xNN>", or -1.
[[nodiscard]] int parse_byte_token(std::string_view name);

}  // namespace sightline::text
