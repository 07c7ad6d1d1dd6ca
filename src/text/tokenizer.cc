#include "sightline/text/tokenizer.h"

#include <algorithm>

#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace sightline {
namespace {

/// Control tokens that end a turn or a text, by the names that models give them. Files name one of them in
/// eos_token_id and leave the others to be known.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",         "<|eom_id|>", "<|im_end|>",    "<|end|>",
    "<|return|>",         "<|call|>",   "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>",    "<EOT>",      "_<EOT>",        "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
};

bool is_special_type(TokenType type) { return type == TokenType::kControl || type == TokenType::kUnknown; }

Result<void> build_matcher(text::AddedTokens& added) {
  SIGHTLINE_TRY(added.matcher, text::Matcher::build(added.texts));
  return {};
}

}  // namespace

Result<void> Tokenizer::Impl::finish(std::span<const TokenId> more_ends) {
  SIGHTLINE_CHECK(build_matcher(control));
  SIGHTLINE_CHECK(build_matcher(user_defined));
  SIGHTLINE_CHECK(build_matcher(user_defined_after));
  for (const TokenId id : more_ends) {
    if (id >= 0) end_ids.push_back(id);
  }
  if (eos >= 0) end_ids.push_back(eos);
  for (const std::string_view name : kEndNames) {
    const auto found = ids_by_name.find(name);
    if (found != ids_by_name.end() && types[static_cast<std::size_t>(found->second)] == TokenType::kControl) {
      end_ids.push_back(found->second);
    }
  }
  std::sort(end_ids.begin(), end_ids.end());
  end_ids.erase(std::unique(end_ids.begin(), end_ids.end()), end_ids.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is_mergeable(static_cast<TokenId>(i)))
      longest_mergeable = std::max(longest_mergeable, names[i].size());
  }
  return {};
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::string out;
  bool at_start = impl_->strips_first_blank;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size()) {
      return fail(ErrorKind::kInvalidArgument, "decode: ids[{}] = {}, expected 0 to {}", i, ids[i],
                  vocab_size() - 1);
    }
    if (is_special(ids[i])) {
      if (!skip_special) out += token_text(ids[i]);
      continue;
    }
    std::string_view text = token_text(ids[i]);
    if (at_start && text.starts_with(' ')) text.remove_prefix(1);
    at_start = false;
    out += text;
  }
  return out;
}

std::string_view Tokenizer::token_text(TokenId id) const {
  return id < 0 || id >= vocab_size() ? std::string_view() : impl_->bytes[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && is_special_type(impl_->types[static_cast<std::size_t>(id)]);
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->names.size()); }

TokenId Tokenizer::find_token(std::string_view name) const {
  const auto found = impl_->ids_by_name.find(name);
  return found == impl_->ids_by_name.end() ? -1 : found->second;
}

TokenId Tokenizer::bos_id() const { return impl_->bos; }
TokenId Tokenizer::eos_id() const { return impl_->eos; }
TokenId Tokenizer::unk_id() const { return impl_->unk; }
TokenId Tokenizer::pad_id() const { return impl_->pad; }
bool Tokenizer::adds_bos() const { return !impl_->prefix.empty() && impl_->prefix.front() == impl_->bos; }
bool Tokenizer::adds_eos() const { return !impl_->suffix.empty() && impl_->suffix.back() == impl_->eos; }
std::span<const TokenId> Tokenizer::end_ids() const { return impl_->end_ids; }
bool Tokenizer::is_end(TokenId id) const {
  return std::binary_search(impl_->end_ids.begin(), impl_->end_ids.end(), id);
}
std::string Tokenizer::describe() const { return impl_->description; }

std::string Tokenizer::protect(std::string_view text, std::string_view mark) const {
  std::string out;
  std::size_t at = 0;
  for (const text::Matcher::Match& match : impl_->control.matcher.find_every_start(text)) {
    out.append(text, at, match.range.begin - at).append(mark);
    at = match.range.begin;
  }
  return out.append(text, at);
}

Detokenizer::Detokenizer(Tokenizer tokenizer, bool skip_special, bool at_start)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(skip_special),
      starts_text_(at_start),
      at_start_(at_start) {}

std::string Detokenizer::push(TokenId id) {
  if (id < 0 || id >= tokenizer_.vocab_size()) {
    std::string out = text::take_whole_utf8(held_, true);
    return out + "\xEF\xBF\xBD";
  }
  if (tokenizer_.is_special(id)) {
    if (skip_special_) return {};
    held_ += tokenizer_.token_text(id);
    return text::take_whole_utf8(held_, false);
  }
  const TokenId one[] = {id};
  // decode() of one id strips the blank that starts a text; the bytes as they are keep it.
  const auto first = at_start_ ? tokenizer_.decode(one, skip_special_) : Result<std::string>(std::string());
  held_ += at_start_ && first ? *first : std::string(tokenizer_.token_text(id));
  at_start_ = false;
  return text::take_whole_utf8(held_, false);
}

std::string Detokenizer::flush() {
  at_start_ = starts_text_;
  return text::take_whole_utf8(held_, true);
}

}  // namespace sightline
