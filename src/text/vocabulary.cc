#include "sightline/text/vocabulary.h"

#include <cmath>

#include "text/utf8.h"
#include "text/vocabulary_index.h"

namespace sightline {
namespace text {
namespace {

/// Words for "SOURCE: tokenizer.ggml.FIELD".
std::string where(const TokenizerSpec& spec, std::string_view field) {
  return fmt::format("{}: tokenizer.ggml.{}", spec.source, field);
}

Result<void> check_sizes(const TokenizerSpec& spec, bool is_byte_level) {
  const std::size_t n = spec.tokens.size();
  if (n == 0) return fail(ErrorKind::kInvalidContent, "{}: expected tokens, got none", where(spec, "tokens"));
  if (n > kMaxVocabSize) {
    return fail(ErrorKind::kInvalidContent, "{}: expected at most {} tokens, got {}", where(spec, "tokens"),
                kMaxVocabSize, n);
  }
  if (spec.scores.size() != n && !(is_byte_level && spec.scores.empty())) {
    return fail(ErrorKind::kInvalidContent, "{}: expected {} entries as tokens has, got {}",
                where(spec, "scores"), n, spec.scores.size());
  }
  if (!spec.types.empty() && spec.types.size() != n) {
    return fail(ErrorKind::kInvalidContent, "{}: expected {} entries as tokens has, got {}",
                where(spec, "token_type"), n, spec.types.size());
  }
  if (is_byte_level && spec.merges.empty()) {
    return fail(ErrorKind::kInvalidContent, "{}: byte-level BPE needs merges, got none",
                where(spec, "merges"));
  }
  for (std::size_t i = 0; i < spec.scores.size(); ++i) {
    if (!std::isfinite(spec.scores[i])) {
      return fail(ErrorKind::kInvalidContent, "{}[{}]: expected a finite number, got {}",
                  where(spec, "scores"), i, spec.scores[i]);
    }
  }
  return {};
}

Result<void> check_ids(const TokenizerSpec& spec) {
  const std::pair<const char*, const std::optional<std::int64_t>*> ids[] = {
      {"bos_token_id", &spec.bos_id}, {"eos_token_id", &spec.eos_id},     {"eot_token_id", &spec.eot_id},
      {"eom_token_id", &spec.eom_id}, {"unknown_token_id", &spec.unk_id}, {"padding_token_id", &spec.pad_id},
  };
  for (const auto& [field, id] : ids) {
    if (*id && (**id < 0 || **id >= static_cast<std::int64_t>(spec.tokens.size()))) {
      return fail(ErrorKind::kInvalidContent, "{}: expected an id below the vocabulary's size {}, got {}",
                  where(spec, field), spec.tokens.size(), **id);
    }
  }
  if (spec.add_bos.value_or(false) && !spec.bos_id) {
    return fail(ErrorKind::kInvalidContent, "{}: is true, but bos_token_id is missing",
                where(spec, "add_bos_token"));
  }
  if (spec.add_eos.value_or(false) && !spec.eos_id) {
    return fail(ErrorKind::kInvalidContent, "{}: is true, but eos_token_id is missing",
                where(spec, "add_eos_token"));
  }
  return {};
}

Result<void> index_tokens(const TokenizerSpec& spec, VocabularyIndex& index) {
  const std::size_t n = spec.tokens.size();
  index.types.resize(n);
  index.ids.reserve(n);
  index.byte_ids.fill(-1);
  std::size_t added_bytes = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::string& token = spec.tokens[i];
    const std::int32_t type = spec.types.empty() ? 1 : spec.types[i];
    if (type < 1 || type > 6) {
      return fail(ErrorKind::kInvalidContent, "{}[{}]: expected 1 to 6, got {}", where(spec, "token_type"), i,
                  type);
    }
    index.types[i] = static_cast<TokenType>(type);
    const int byte = parse_byte_token(token);
    if (type == static_cast<int>(TokenType::kByte) && byte < 0) {
      return fail(ErrorKind::kInvalidContent,
                  "{}[{}]: expected <0x00> to <0xFF> for a token of type byte, got {}", where(spec, "tokens"),
                  i, quoted(token));
    }
    if (spec.types.empty() && byte >= 0 && !index.is_byte_level) index.types[i] = TokenType::kByte;
    if (index.types[i] == TokenType::kByte && !index.is_byte_level) {
      if (index.byte_ids[static_cast<std::size_t>(byte)] >= 0) {
        return fail(ErrorKind::kInvalidContent, "{}[{}]: byte token {} is there twice", where(spec, "tokens"),
                    i, quoted(token));
      }
      index.byte_ids[static_cast<std::size_t>(byte)] = static_cast<TokenId>(i);
    }
    const bool is_added = type == 2 || type == 3 || type == 4;
    if (is_added) {
      added_bytes += token.size();
      if (token.empty() || token.size() > kMaxAddedTokenBytes || added_bytes > kMaxAddedTokensBytes) {
        return fail(ErrorKind::kInvalidContent,
                    "{}[{}]: expected 1 to {} bytes for a control or user-defined token and {} for all, got "
                    "{} and {}",
                    where(spec, "tokens"), i, kMaxAddedTokenBytes, kMaxAddedTokensBytes, token.size(),
                    added_bytes);
      }
    }
    // Converters leave empty names on ids that are never used.
    if (!token.empty() && !index.ids.emplace(token, static_cast<TokenId>(i)).second) {
      return fail(ErrorKind::kInvalidContent, "{}[{}]: {} is also the token {}", where(spec, "tokens"), i,
                  quoted(token), index.ids.at(token));
    }
  }
  if (!spec.types.empty()) return {};
  for (const auto& id : {spec.bos_id, spec.eos_id, spec.eot_id, spec.eom_id}) {
    if (id) index.types[static_cast<std::size_t>(*id)] = TokenType::kControl;
  }
  if (spec.unk_id) index.types[static_cast<std::size_t>(*spec.unk_id)] = TokenType::kUnknown;
  return {};
}

Result<void> index_merges(const TokenizerSpec& spec, VocabularyIndex& index) {
  index.merges = MergeTable(spec.merges.size());
  std::string joined;
  for (std::size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const std::string_view merge = spec.merges[rank];
    const std::size_t blank = merge.find(' ');
    if (blank == 0 || blank == std::string_view::npos || blank + 1 == merge.size() ||
        merge.find(' ', blank + 1) != std::string_view::npos) {
      return fail(ErrorKind::kInvalidContent, "{}[{}]: expected two parts with a blank between, got {}",
                  where(spec, "merges"), rank, quoted(merge));
    }
    const std::string_view left = merge.substr(0, blank), right = merge.substr(blank + 1);
    joined.assign(left).append(right);
    TokenId ids[3];
    const std::string_view texts[3] = {left, right, joined};
    for (int i = 0; i < 3; ++i) {
      const auto found = index.ids.find(texts[i]);
      if (found == index.ids.end()) {
        return fail(ErrorKind::kInvalidContent, "{}[{}]: {} is not in the vocabulary", where(spec, "merges"),
                    rank, quoted(texts[i]));
      }
      ids[i] = found->second;
    }
    const TokenType type = index.types[static_cast<std::size_t>(ids[2])];
    if (type == TokenType::kControl || type == TokenType::kUnknown) {
      return fail(ErrorKind::kInvalidContent, "{}[{}]: makes the control token {}", where(spec, "merges"),
                  rank, quoted(joined));
    }
    index.merges.insert(ids[0], ids[1], {static_cast<std::uint32_t>(rank), ids[2]});
  }
  return {};
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i == 40) return out + "...'";
    const auto c = static_cast<unsigned char>(text[i]);
    out += c < 0x20 || c == 0x7F ? '?' : static_cast<char>(c);
  }
  std::string whole = take_whole_utf8(out, true);
  return whole + "'";
}

std::string token_bytes(std::string_view name, TokenType type, bool is_byte_level) {
  const bool is_literal =
      type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
  if (is_literal) return std::string(name);
  if (!is_byte_level) {
    if (type == TokenType::kByte) return std::string(1, static_cast<char>(parse_byte_token(name)));
    std::string out;
    for (std::size_t at = 0; at < name.size();) {
      if (name.substr(at).starts_with(kBlankLetter)) {
        out += ' ';
        at += kBlankLetter.size();
      } else {
        out += name[at++];
      }
    }
    return out;
  }
  std::string out;
  for (std::size_t at = 0; at < name.size();) {
    const Utf8Step step = utf8_step(name.substr(at));
    const int byte = byte_of_letter(step.code_point);
    if (byte < 0) return std::string(name);  // no word of bytes: it stands for itself
    out += static_cast<char>(byte);
    at += step.length;
  }
  return out;
}

std::string byte_letter(unsigned byte) {
  const bool prints_itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  char32_t letter = byte;
  if (!prints_itself) {
    // The others take the code points from 256 on, in order: 0-32, 127-160, 173.
    letter = 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
  }
  std::string out;
  append_utf8(out, letter);
  return out;
}

int byte_of_letter(char32_t letter) {
  if (letter < 256) {
    const bool prints_itself =
        (letter >= 33 && letter <= 126) || (letter >= 161 && letter <= 172) || letter >= 174;
    return prints_itself ? static_cast<int>(letter) : -1;
  }
  const int rest = static_cast<int>(letter) - 256;
  if (rest <= 32) return rest;
  if (rest <= 66) return rest - 33 + 127;
  return rest == 67 ? 173 : -1;
}

int parse_byte_token(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name.back() != '>') return -1;
  int value = 0;
  for (const char c : name.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Result<VocabularyIndex> index_vocabulary(const TokenizerSpec& spec) {
  VocabularyIndex index;
  if (spec.model != "llama" && spec.model != "gpt2") {
    return fail(ErrorKind::kInvalidContent, "{}: unsupported kind {}; supported are 'llama' and 'gpt2'",
                where(spec, "model"), quoted(spec.model));
  }
  index.is_byte_level = spec.model == "gpt2";
  if (index.is_byte_level) {
    const std::string& name = spec.override_pre.empty() ? spec.pre : spec.override_pre;
    index.pre = find_pre_tokenizer(name);
    if (index.pre == nullptr) {
      return fail(ErrorKind::kInvalidContent, "{}: {}; state a known one to go on", where(spec, "pre"),
                  name.empty() ? "the name of the pre-tokenizer is missing"
                               : "unknown pre-tokenizer " + quoted(name));
    }
  }
  if (spec.remove_extra_whitespaces.value_or(false)) {
    return fail(ErrorKind::kInvalidContent, "{}: true is not supported",
                where(spec, "remove_extra_whitespaces"));
  }
  SIGHTLINE_CHECK(check_sizes(spec, index.is_byte_level));
  SIGHTLINE_CHECK(check_ids(spec));
  const bool begins_texts = !index.is_byte_level || index.pre->add_bos;
  if (begins_texts && !spec.add_bos && !spec.bos_id) {
    return fail(ErrorKind::kInvalidContent,
                "{}: missing, and texts of this kind begin with that token unless add_bos_token is false",
                where(spec, "bos_token_id"));
  }
  SIGHTLINE_CHECK(index_tokens(spec, index));
  if (index.is_byte_level) {
    SIGHTLINE_CHECK(index_merges(spec, index));
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto found = index.ids.find(byte_letter(byte));
      index.byte_ids[byte] = found == index.ids.end() ? -1 : found->second;
    }
  }
  return index;
}

}  // namespace text

Result<void> validate(const TokenizerSpec& spec) {
  SIGHTLINE_TRY([[maybe_unused]] const auto index, text::index_vocabulary(spec));
  return {};
}

}  // namespace sightline
