#include "sightline/text/chat_template.h"

#include "text/rust_api.h"
#include "text/rust_bridge.h"
#include "text/utf8.h"

namespace sightline {
namespace {

constexpr std::size_t kMaxSourceBytes = std::size_t{128} << 10;

Result<void> check_utf8(std::string_view text, std::string_view what) {
  if (const std::size_t at = text::find_invalid_utf8(text); at != std::string::npos) {
    return fail(ErrorKind::kInvalidContent,
                "chat template: {}: expected UTF-8, got another byte at offset {}", what, at);
  }
  return {};
}

/// A character that occurs in none of the texts, to mark what messages own.
std::string unused_character(std::string_view source, std::span<const ChatMessage> messages) {
  const auto occurs = [&](const std::string& mark) {
    if (source.find(mark) != std::string_view::npos) return true;
    for (const ChatMessage& message : messages) {
      if (message.role.find(mark) != std::string::npos || message.content.find(mark) != std::string::npos)
        return true;
    }
    return false;
  };
  // Characters that Unicode keeps out of texts first, then those of private use.
  std::string mark;
  for (char32_t c = 0xFDD0; c <= 0x10FFFD; c = c == 0xFDEF ? 0xF0000 : c + 1) {
    mark.clear();
    text::append_utf8(mark, c);
    if (!occurs(mark)) break;
  }
  return mark;
}

}  // namespace

struct ChatTemplate::Impl {
  std::shared_ptr<sl_template> handle;
  std::string source, bos, eos;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string_view bos, std::string_view eos,
                                         ChatTemplateLimits limits) {
  if (source.size() > kMaxSourceBytes) {
    return fail(ErrorKind::kInvalidContent, "chat template: expected at most {} bytes, got {}",
                kMaxSourceBytes, source.size());
  }
  SIGHTLINE_CHECK(check_utf8(source, "source"));
  SIGHTLINE_CHECK(check_utf8(bos, "begin-of-text token"));
  SIGHTLINE_CHECK(check_utf8(eos, "end-of-text token"));
  auto impl = std::make_shared<Impl>();
  impl->source = source;
  impl->bos = bos;
  impl->eos = eos;
  sl_template* handle = nullptr;
  text::StringSink message;
  const int32_t status = sl_template_new(text::as_sl_text(source), limits.max_steps, limits.max_output_bytes,
                                         &handle, message.get());
  if (status != 0) return text::rust_error(status, "chat template", message);
  impl->handle = std::shared_ptr<sl_template>(handle, sl_template_free);
  ChatTemplate chat_template(std::move(impl));
  // One short turn is what every chat template takes.
  const ChatMessage trial[] = {{"user", "Hello"}};
  SIGHTLINE_TRY([[maybe_unused]] const std::string text, chat_template.render(trial, true));
  return chat_template;
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const {
  std::vector<sl_text> texts;
  for (const ChatMessage& message : messages) {
    SIGHTLINE_CHECK(check_utf8(message.role, "role of a message"));
    SIGHTLINE_CHECK(check_utf8(message.content, "content of a message"));
    texts.push_back(text::as_sl_text(message.role));
    texts.push_back(text::as_sl_text(message.content));
  }
  text::StringSink result;
  text::StringSink error;
  const int32_t status = sl_template_render(impl_->handle.get(), texts.data(), messages.size(),
                                            add_generation_prompt, text::as_sl_text(impl_->bos),
                                            text::as_sl_text(impl_->eos), result.get(), error.get());
  if (status != 0) return text::rust_error(status, "chat template", error);
  return result.take();
}

Result<std::vector<TokenId>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                  std::span<const ChatMessage> messages,
                                                  bool add_generation_prompt) const {
  // A mark goes before each place of a message where a control token's name begins. It passes through the
  // template with its text; the character after it then belongs to the message, and no control token is
  // recognised across that character. Messages without such names pass unchanged.
  const std::string mark = unused_character(impl_->source, messages);
  std::vector<ChatMessage> marked;
  for (const ChatMessage& message : messages) {
    marked.push_back({tokenizer.protect(message.role, mark), tokenizer.protect(message.content, mark)});
  }
  SIGHTLINE_TRY(const std::string text, render(marked, add_generation_prompt));
  std::vector<TextRun> runs;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(mark, at)) != std::string::npos;) {
    runs.push_back({text.substr(at, found - at), true});
    at = found + mark.size();
    if (at == text.size()) break;
    const std::size_t length = text::utf8_step(std::string_view(text).substr(at)).length;
    if (text.compare(at, mark.size(), mark) == 0) continue;
    runs.push_back({text.substr(at, length), false});
    at += length;
  }
  runs.push_back({text.substr(at), true});
  return tokenizer.encode_runs(runs, false);
}

}  // namespace sightline
