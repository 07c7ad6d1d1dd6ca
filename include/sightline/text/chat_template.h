// Chat templates: Jinja as models' files carry it, run with limits on steps, depth and output.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/text/tokenizer.h"

namespace sightline {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

struct ChatTemplateLimits {
  /// Of the engine: instructions, and data made and visited in shares. What a thread's stack may have to hold
  /// grows with it: 680 MiB of address space at a million, of which the system gives what is touched.
  std::uint64_t max_steps = 1'000'000;
  std::size_t max_output_bytes = std::size_t{4} << 20;
};

/// A compiled template. Cheap to copy, safe to use from several threads.
class ChatTemplate {
 public:
  /// Compiles `source` (at most 128 KiB) and renders a short trial conversation, so that a template that
  /// cannot work or does not end is refused here. `bos` and `eos` are the texts of those tokens.
  /// Errors: kInvalidContent with the line.
  [[nodiscard]] static Result<ChatTemplate> parse(std::string_view source, std::string_view bos,
                                                  std::string_view eos, ChatTemplateLimits limits = {});

  /// The text of the conversation; `add_generation_prompt` opens the assistant's turn.
  /// Errors: kInvalidContent: what the template raises, over a limit, a message that is not UTF-8.
  [[nodiscard]] Result<std::string> render(std::span<const ChatMessage> messages,
                                           bool add_generation_prompt) const;

  /// The ids of the conversation. Control tokens come from the template's own text only: what messages say
  /// is encoded as plain text, even when it spells a control token. No begin-of-text token is
  /// added beside what the template writes.
  [[nodiscard]] Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer,
                                                    std::span<const ChatMessage> messages,
                                                    bool add_generation_prompt) const;

  struct Impl;

 private:
  explicit ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace sightline
