// What a Tokenizer holds, whichever file it came from: tables and a short list of steps. Filled by
// tokenizer_spec.cc or tokenizer_json.cc, then never changed.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "sightline/text/tokenizer.h"
#include "text/merge.h"
#include "text/pre_tokenizer.h"
#include "text/rust_bridge.h"

namespace sightline {
namespace text {

/// Steps on the text between added tokens, before it is cut into words.
struct PrependStep {
  std::string text;  // before a text that is not empty
};
struct ReplaceStep {
  std::string from, to;
};
struct UnicodeStep {
  NormalForm form = NormalForm::kNfc;
};
using NormalizeStep = std::variant<PrependStep, ReplaceStep, UnicodeStep>;

/// `text` after the steps in turn.
[[nodiscard]] Result<std::string> apply_normalize_steps(std::span<const NormalizeStep> steps,
                                                        std::string text);

/// Where the words' own first blank is added (Metaspace and ByteLevel of tokenizer.json).
enum class PrefixScheme { kNever, kFirst, kAlways };

struct AddedToken {
  TokenId id = -1;
  bool strips_left = false;   // takes white space before it along
  bool strips_right = false;  // and after it
};

/// Added tokens of one kind and the automaton that finds them; `tokens[i]` belongs to the matcher's index i.
struct AddedTokens {
  std::vector<std::string> texts;
  std::vector<AddedToken> tokens;
  Matcher matcher;
};

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TextToId = std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>>;

/// How the symbols of a word are joined.
enum class MergeOrder { kRank, kScore };

}  // namespace text

struct Tokenizer::Impl {
  std::string description;

  // The vocabulary, by id.
  std::vector<std::string> names;  // as the file writes them
  std::vector<std::string> bytes;  // what they stand for
  std::vector<TokenType> types;
  std::vector<float> scores;   // kScore only
  text::TextToId ids_by_name;  // every name that is not empty
  TokenId bos = -1, eos = -1, unk = -1, pad = -1;
  std::vector<TokenId> end_ids;         // sorted
  std::vector<TokenId> prefix, suffix;  // what add_special puts around a text

  // From text to pieces.
  text::AddedTokens control;             // only where the caller asks
  text::AddedTokens user_defined;        // everywhere, in the text as given
  text::AddedTokens user_defined_after;  // everywhere, in the normalised text
  std::vector<text::NormalizeStep> normalize;
  std::string word_prefix;  // "" or the blank that `prefix_scheme` adds
  text::PrefixScheme prefix_scheme = text::PrefixScheme::kNever;
  std::vector<text::SplitStep> splits;

  // From pieces to ids.
  bool is_byte_level = false;
  bool ignore_merges = false;
  bool fuse_unknown = false;
  text::MergeOrder order = text::MergeOrder::kRank;
  text::MergeTable merges;              // kRank
  std::array<TokenId, 256> byte_ids{};  // -1: none
  std::size_t longest_mergeable = 0;    // bytes of the longest name that merging may make

  // From ids to text.
  bool strips_first_blank = false;

  /// Whether merging or looking up a whole word may give `id`.
  [[nodiscard]] bool is_mergeable(TokenId id) const;
  /// The mergeable id of `name`, or -1.
  [[nodiscard]] TokenId find_mergeable(std::string_view name) const;
  /// Appends the ids of one piece of text without added tokens.
  [[nodiscard]] Result<void> encode_piece(std::string_view piece, bool is_first,
                                          std::vector<TokenId>& out) const;
  /// Fills what follows from the rest: matchers, end ids, longest_mergeable. `more_ends` are end ids too.
  [[nodiscard]] Result<void> finish(std::span<const TokenId> more_ends);

 private:
  [[nodiscard]] Result<void> encode_words(std::string_view text, bool is_first,
                                          std::vector<TokenId>& out) const;
  [[nodiscard]] Result<void> encode_word(std::string_view word, std::vector<text::Symbol>& scratch,
                                         std::vector<TokenId>& out) const;
};

}  // namespace sightline
