// Bytes as a chat template or as the messages of one. A template ends within its limits or is refused; in
// the templates that models have, control tokens come from the template alone.
#include <algorithm>

#include "fuzz_check.h"
#include "fuzz_input.h"
#include "sightline/text/chat_template.h"
#include "text/tokenizer_fixtures.h"
#include "text/utf8.h"

namespace sightline {
namespace {

constexpr ChatTemplateLimits kLimits{.max_steps = 20'000, .max_output_bytes = std::size_t{1} << 16};

/// Ways in which published templates put messages between control tokens.
constexpr std::string_view kTemplates[] = {
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|end|>' "
    "+ "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "{%- for m in messages -%}\n<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|end|>\n{%- endfor -%}",
    "{% set ns = namespace(text='') %}{% for m in messages %}{% set ns.text = ns.text ~ '<|im_start|>' ~ "
    "m.content.strip() ~ '\n<|end|>' %}{% endfor %}{{ ns.text }}",
};

const Tokenizer& tokenizer() {
  static const auto made = Tokenizer::from_spec(text::small_byte_spec());
  return *made;
}

void check_template(std::string_view source, std::span<const ChatMessage> messages) {
  const auto chat_template = ChatTemplate::parse(source, "<|im_start|>", "<|end|>", kLimits);
  if (!chat_template) {
    fuzz_check(chat_template.error().kind == ErrorKind::kInvalidContent);
    return;
  }
  for (const bool prompt : {false, true}) {
    const auto rendered = chat_template->render(messages, prompt);
    if (rendered) {
      fuzz_check(rendered->size() <= kLimits.max_output_bytes);
      fuzz_check(text::find_invalid_utf8(*rendered) == std::string::npos);
    } else {
      fuzz_check(rendered.error().kind == ErrorKind::kInvalidContent);
    }
    const auto ids = chat_template->encode(tokenizer(), messages, prompt);
    if (!ids) fuzz_check(ids.error().kind == ErrorKind::kInvalidContent);
  }
}

void check_messages(std::string_view source, std::span<const ChatMessage> messages) {
  const auto chat_template = ChatTemplate::parse(source, "", "");
  fuzz_check(chat_template.has_value());
  const auto ids = chat_template->encode(tokenizer(), messages, false);
  const bool is_utf8 = std::all_of(messages.begin(), messages.end(), [](const ChatMessage& m) {
    return text::find_invalid_utf8(m.role) == std::string::npos &&
           text::find_invalid_utf8(m.content) == std::string::npos;
  });
  fuzz_check(ids.has_value() == is_utf8);
  if (!ids) return;
  fuzz_check(tokenizer().decode(*ids, false).value() == chat_template->render(messages, false).value());
  for (const char* name : {"<|im_start|>", "<|end|>"}) {
    fuzz_check(std::count(ids->begin(), ids->end(), tokenizer().find_token(name)) == std::ssize(messages));
  }
}

}  // namespace
}  // namespace sightline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  FuzzInput in(data, size);
  const std::int64_t known = in.below(8);
  const auto role = std::string(in.text_until('\n'));
  const ChatMessage messages[] = {{"user", std::string(in.text_until('\n'))}, {role, "hi <|end|>"}};
  if (known < std::ssize(kTemplates)) {
    const ChatMessage more[] = {messages[0], messages[1], {"system", std::string(in.rest())}};
    check_messages(kTemplates[known], more);
  } else {
    check_template(in.rest(), messages);
  }
  return 0;
}
