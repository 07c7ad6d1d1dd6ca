// From text to ids: control tokens, then user-defined ones, then normalisation, words and merging. Each stage
// works on what the one before left over, so every byte is looked at a fixed number of times.
#include <algorithm>
#include <bit>
#include <cstring>

#include "text/tokenizer_impl.h"
#include "text/utf8.h"
#include "text/vocabulary_index.h"

namespace sightline {
namespace text {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

/// A stretch of text: one token, or text that is still to be encoded.
struct Fragment {
  ByteRange range;
  TokenId id = -1;
};

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

/// `range` with the white space on the sides that `token` strips, inside [low, high).
ByteRange with_white_space(std::string_view text, ByteRange range, ByteRange bounds,
                           const AddedToken& token) {
  while (token.strips_left && range.begin > bounds.begin) {
    std::size_t at = range.begin - 1;
    while (at > bounds.begin && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_white_space(utf8_step(text.substr(at)).code_point)) break;
    range.begin = at;
  }
  while (token.strips_right && range.end < bounds.end) {
    const Utf8Step step = utf8_step(text.substr(range.end));
    if (!is_white_space(step.code_point)) break;
    range.end += step.length;
  }
  return range;
}

/// Cuts the text of `fragments` at the tokens of `added`, looking inside `stretches` only (null: everywhere).
std::vector<Fragment> cut(std::string_view text, const std::vector<Fragment>& fragments,
                          const AddedTokens& added, const std::vector<ByteRange>* stretches) {
  if (added.tokens.empty()) return fragments;
  std::vector<Fragment> out;
  for (const Fragment& fragment : fragments) {
    if (fragment.id >= 0) {
      out.push_back(fragment);
      continue;
    }
    std::size_t at = fragment.range.begin;
    const auto cut_stretch = [&](ByteRange stretch) {
      const std::size_t size = stretch.end - stretch.begin;
      for (const Matcher::Match& match : added.matcher.find_all(text.substr(stretch.begin, size))) {
        const AddedToken& token = added.tokens[match.token_idx];
        ByteRange range{stretch.begin + match.range.begin, stretch.begin + match.range.end};
        if (range.begin < at) continue;  // white space of the token before it
        range = with_white_space(text, range, {at, fragment.range.end}, token);
        if (range.begin > at) out.push_back({{at, range.begin}, -1});
        out.push_back({range, token.id});
        at = range.end;
      }
    };
    if (stretches == nullptr) {
      cut_stretch(fragment.range);
    } else {
      for (const ByteRange& stretch : *stretches) cut_stretch(stretch);
    }
    if (at < fragment.range.end) out.push_back({{at, fragment.range.end}, -1});
  }
  return out;
}

std::string replace_all(std::string_view text, const ReplaceStep& step) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(step.from, at)) != std::string_view::npos;
       at = found + step.from.size()) {
    out.append(text, at, found - at).append(step.to);
  }
  return out.append(text, at);
}

Result<std::string> apply(const NormalizeStep& step, std::string text) {
  if (const auto* prepend = std::get_if<PrependStep>(&step))
    return text.empty() ? text : prepend->text + text;
  if (const auto* replace = std::get_if<ReplaceStep>(&step)) return replace_all(text, *replace);
  return normalize(text, std::get<UnicodeStep>(step).form);
}

/// Orders scores for Merge::key: the highest first.
std::uint32_t score_key(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // -0 becomes 0
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

}  // namespace

Result<std::string> apply_normalize_steps(std::span<const NormalizeStep> steps, std::string text) {
  for (const NormalizeStep& step : steps) {
    SIGHTLINE_TRY(text, apply(step, std::move(text)));
  }
  return text;
}

}  // namespace text

bool Tokenizer::Impl::is_mergeable(TokenId id) const {
  const TokenType type = types[static_cast<std::size_t>(id)];
  return type == TokenType::kNormal || type == TokenType::kUserDefined || type == TokenType::kUnused;
}

TokenId Tokenizer::Impl::find_mergeable(std::string_view name) const {
  const auto found = ids_by_name.find(name);
  return found == ids_by_name.end() || !is_mergeable(found->second) ? -1 : found->second;
}

Result<void> Tokenizer::Impl::encode_word(std::string_view word, std::vector<text::Symbol>& symbols,
                                          std::vector<TokenId>& out) const {
  symbols.clear();
  // The whole word first, where the file says so (ids_by_name has letters for bytes in byte-level BPE).
  if (ignore_merges) {
    std::string letters;
    for (const char c : word) {
      if (is_byte_level) {
        letters += text::byte_letter(static_cast<unsigned char>(c));
      } else {
        letters += c;
      }
    }
    if (const TokenId id = find_mergeable(letters); id >= 0) {
      out.push_back(id);
      return {};
    }
  }
  for (std::size_t at = 0; at < word.size();) {
    const auto begin = static_cast<std::uint32_t>(at);
    if (is_byte_level) {
      symbols.push_back({byte_ids[static_cast<unsigned char>(word[at])], begin, 1});
      ++at;
      continue;
    }
    const std::size_t length = text::utf8_step(word.substr(at)).length;
    const TokenId id = find_mergeable(word.substr(at, length));
    if (id >= 0 || order == text::MergeOrder::kScore) {
      symbols.push_back({id, begin, static_cast<std::uint32_t>(length)});
    } else {
      for (std::size_t i = 0; i < length; ++i) {
        symbols.push_back(
            {byte_ids[static_cast<unsigned char>(word[at + i])], static_cast<std::uint32_t>(at + i), 1});
      }
    }
    at += length;
  }
  if (order == text::MergeOrder::kRank) {
    merge_symbols(symbols, [this](const text::Symbol& left, const text::Symbol& right) {
      return merges.find(left.id, right.id);
    });
  } else {
    merge_symbols(symbols, [&](const text::Symbol& left, const text::Symbol& right) -> text::Merge {
      const std::size_t length = std::size_t{left.length} + right.length;
      if (length > longest_mergeable) return {};
      const TokenId id = find_mergeable(word.substr(left.begin, length));
      if (id < 0) return {};
      return {text::score_key(scores[static_cast<std::size_t>(id)]), id};
    });
  }
  bool after_unknown = false;
  for (const text::Symbol& symbol : symbols) {
    bool is_unknown = false;
    for (std::uint32_t i = 0; symbol.id < 0 && i < symbol.length; ++i) {
      const auto byte = static_cast<unsigned char>(word[symbol.begin + i]);
      TokenId id = byte_ids[byte];
      if (id < 0) {
        // An unknown token that is a control token must not come out of a text.
        if (unk < 0 || is_byte_level) {
          return fail(ErrorKind::kInvalidContent, "encode: this vocabulary has no token for byte 0x{:02X}",
                      byte);
        }
        // One for the character, not one for each of its bytes.
        is_unknown = true;
        const bool continues = (byte & 0xC0) == 0x80;
        if (continues || (fuse_unknown && after_unknown)) continue;
        id = unk;
      }
      out.push_back(id);
    }
    if (symbol.id >= 0) out.push_back(symbol.id);
    after_unknown = is_unknown;
  }
  return {};
}

Result<void> Tokenizer::Impl::encode_words(std::string_view text, bool is_first,
                                           std::vector<TokenId>& out) const {
  std::string prefixed;
  const bool wants_prefix = prefix_scheme == text::PrefixScheme::kAlways ||
                            (prefix_scheme == text::PrefixScheme::kFirst && is_first);
  if (wants_prefix && !text.empty() && !text.starts_with(word_prefix)) {
    prefixed = word_prefix + std::string(text);
    text = prefixed;
  }
  SIGHTLINE_TRY(const auto words, text::split_text(text, splits));
  std::vector<text::Symbol> scratch;
  for (const text::ByteRange& word : words) {
    SIGHTLINE_CHECK(encode_word(text.substr(word.begin, word.end - word.begin), scratch, out));
  }
  return {};
}

Result<void> Tokenizer::Impl::encode_piece(std::string_view piece, bool is_first,
                                           std::vector<TokenId>& out) const {
  if (normalize.empty() && user_defined_after.tokens.empty()) return encode_words(piece, is_first, out);
  SIGHTLINE_TRY(const std::string normalized, text::apply_normalize_steps(normalize, std::string(piece)));
  const std::vector<text::Fragment> whole = {{{0, normalized.size()}, -1}};
  for (const text::Fragment& fragment : text::cut(normalized, whole, user_defined_after, nullptr)) {
    if (fragment.id >= 0) {
      out.push_back(fragment.id);
      continue;
    }
    const std::size_t size = fragment.range.end - fragment.range.begin;
    SIGHTLINE_CHECK(encode_words(std::string_view(normalized).substr(fragment.range.begin, size),
                                 is_first && fragment.range.begin == 0, out));
  }
  return {};
}

Result<std::vector<TokenId>> Tokenizer::encode_runs(std::span<const TextRun> runs, bool add_special) const {
  std::string text;
  std::vector<text::ByteRange> stretches;  // of adjacent runs that may hold control tokens
  for (const TextRun& run : runs) {
    const std::size_t begin = text.size();
    text += run.text;
    if (!run.parse_special || run.text.empty()) continue;
    if (!stretches.empty() && stretches.back().end == begin) {
      stretches.back().end = text.size();
    } else {
      stretches.push_back({begin, text.size()});
    }
  }
  if (text.size() > text::kMaxTextBytes) {
    return fail(ErrorKind::kInvalidContent, "encode: expected at most {} bytes of text, got {}",
                text::kMaxTextBytes, text.size());
  }
  if (const std::size_t at = text::find_invalid_utf8(text); at != std::string::npos) {
    return fail(ErrorKind::kInvalidContent,
                "encode: expected UTF-8, got another byte (0x{:02X}) at offset {}",
                static_cast<unsigned char>(text[at]), at);
  }
  std::vector<text::Fragment> fragments;
  if (!text.empty()) fragments.push_back({{0, text.size()}, -1});
  if (!stretches.empty()) fragments = text::cut(text, fragments, impl_->control, &stretches);
  fragments = text::cut(text, fragments, impl_->user_defined, nullptr);

  std::vector<TokenId> ids;
  if (add_special) ids = impl_->prefix;
  for (const text::Fragment& fragment : fragments) {
    if (fragment.id >= 0) {
      ids.push_back(fragment.id);
      continue;
    }
    const std::size_t size = fragment.range.end - fragment.range.begin;
    SIGHTLINE_CHECK(impl_->encode_piece(std::string_view(text).substr(fragment.range.begin, size),
                                        fragment.range.begin == 0, ids));
  }
  if (add_special) ids.insert(ids.end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextRun run{std::string(text), options.parse_special};
  return encode_runs(std::span(&run, 1), options.add_special);
}

}  // namespace sightline
