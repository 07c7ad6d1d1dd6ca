// Any bytes as text through small fixed tokenizers: what is UTF-8 is encoded and comes back, and no control
// token comes out of a text unless its names are asked for.
#include <algorithm>

#include "fuzz_check.h"
#include "fuzz_input.h"
#include "sightline/text/tokenizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_fixtures.h"
#include "text/utf8.h"

namespace sightline {
namespace {

using Ids = std::vector<TokenId>;

template <typename T>
T must(Result<T> result) {
  fuzz_check(result.has_value());
  return std::move(*result);
}

/// Byte-level BPE under every named pre-tokenizer, then SentencePiece BPE with and without its first blank,
/// then one with user-defined tokens.
std::vector<Tokenizer> make_tokenizers() {
  std::vector<Tokenizer> out;
  for (const text::PreTokenizerRow& row : text::pre_tokenizer_table()) {
    TokenizerSpec spec = text::small_byte_spec();
    spec.pre = row.name;
    out.push_back(must(Tokenizer::from_spec(std::move(spec))));
  }
  for (const bool adds_blank : {true, false}) {
    TokenizerSpec spec = text::small_piece_spec();
    spec.add_space_prefix = adds_blank;
    out.push_back(must(Tokenizer::from_spec(std::move(spec))));
  }
  TokenizerSpec spec = text::small_byte_spec();
  for (const char* name : {"<x>", "<x><y>", "\n\n"}) {
    spec.tokens.emplace_back(name);
    spec.types.push_back(static_cast<std::int32_t>(TokenType::kUserDefined));
  }
  out.push_back(must(Tokenizer::from_spec(std::move(spec))));
  return out;
}

Ids encode(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  return must(tokenizer.encode(text, {.add_special = false, .parse_special = parse_special}));
}

/// The text again from pieces as a stream shows them.
std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string out;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    fuzz_check(text::find_invalid_utf8(piece) == std::string::npos);
    out += piece;
  }
  return out + detokenizer.flush();
}

/// Ids that no text needs to give: what decode() and the stream make of them is one text.
void check_any_ids(const Tokenizer& tokenizer, std::string_view bytes) {
  Ids ids;
  for (const char byte : bytes) {
    ids.push_back(static_cast<TokenId>(static_cast<unsigned char>(byte)) * tokenizer.vocab_size() / 256);
  }
  std::string whole = must(tokenizer.decode(ids, false));
  fuzz_check(streamed(tokenizer, ids, false) == text::take_whole_utf8(whole, true));
}

}  // namespace
}  // namespace sightline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  static const std::vector<Tokenizer> tokenizers = make_tokenizers();
  FuzzInput in(data, size);
  const Tokenizer& tokenizer = in.pick(tokenizers);
  const auto cut = static_cast<std::size_t>(in.byte());
  const std::string_view text = in.rest();
  const bool is_byte_level = tokenizer.describe().starts_with("byte-level");

  if (const std::size_t at = text::find_invalid_utf8(text); at != std::string::npos) {
    const auto ids = tokenizer.encode(text);
    fuzz_check(!ids);
    fuzz_check_refusal(ids.error());
    fuzz_check(ids.error().message.find(fmt::format("offset {}", at)) != std::string::npos);
    check_any_ids(tokenizer, text);
    return 0;
  }
  const Ids plain = encode(tokenizer, text, false);
  for (const TokenId id : plain) fuzz_check(id >= 0 && !tokenizer.is_special(id));
  std::string expected(text);
  if (!is_byte_level) {  // SentencePiece writes blanks as U+2581, so that one comes back as a blank
    const std::string_view blank = "\u2581";
    for (std::size_t at; (at = expected.find(blank)) != std::string::npos;) {
      expected.replace(at, blank.size(), " ");
    }
  }
  fuzz_check(must(tokenizer.decode(plain)) == expected);
  fuzz_check(streamed(tokenizer, plain, true) == expected);

  // Names of control tokens, where they are asked for, come back as names. A blank that pieces put before
  // the text behind such a name stays.
  const Ids parsed = encode(tokenizer, text, true);
  const bool has_control =
      std::any_of(parsed.begin(), parsed.end(), [&](TokenId id) { return tokenizer.is_special(id); });
  if (!has_control) fuzz_check(parsed == plain);
  if (is_byte_level) fuzz_check(must(tokenizer.decode(parsed, false)) == text);

  // Borders between runs of one kind do not exist.
  std::size_t middle = text.empty() ? 0 : cut % (text.size() + 1);
  while (middle < text.size() && (static_cast<unsigned char>(text[middle]) & 0xC0) == 0x80) ++middle;
  for (const bool parse : {false, true}) {
    const TextRun runs[] = {{std::string(text.substr(0, middle)), parse},
                            {std::string(text.substr(middle)), parse}};
    fuzz_check(must(tokenizer.encode_runs(runs, false)) == (parse ? parsed : plain));
  }
  return 0;
}
