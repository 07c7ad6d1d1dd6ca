// Bytes as a tokenizer.json, and behind a byte 0xFF as the tokenizer_config.json beside it. What is accepted
// encodes and decodes some fixed texts.
#include <algorithm>
#include <numeric>

#include "fuzz_check.h"
#include "fuzz_input.h"
#include "sightline/text/tokenizer.h"
#include "text/utf8.h"

namespace sightline {
namespace {

constexpr std::string_view kTexts[] = {
    "",
    "hello  hello\n\n ab",
    "<|end|>a <s></s><unk><m> x",
    "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80 \xE2\x96\x81 'll 123",
};

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = parse_special});
    if (!ids) {  // a byte without a token, or a pattern that gives up
      fuzz_check_refusal(ids.error());
      continue;
    }
    for (const TokenId id : *ids) {
      fuzz_check(id >= 0 && id < tokenizer.vocab_size());
      fuzz_check(parse_special || !tokenizer.is_special(id) || id == tokenizer.unk_id());
    }
    auto decoded = tokenizer.decode(*ids);
    fuzz_check(decoded.has_value());
    Detokenizer detokenizer(tokenizer);
    std::string streamed;
    for (const TokenId id : *ids) streamed += detokenizer.push(id);
    streamed += detokenizer.flush();
    fuzz_check(streamed == text::take_whole_utf8(*decoded, true));
    const auto framed = tokenizer.encode(text, {.add_special = true, .parse_special = parse_special});
    fuzz_check(framed && framed->size() >= ids->size());
  }
}

}  // namespace
}  // namespace sightline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sightline;
  FuzzInput in(data, size);
  const std::string_view json = in.text_until(0xFF);
  const auto tokenizer = Tokenizer::from_json(json, in.rest(), "fuzz");
  if (!tokenizer) {
    fuzz_check_refusal(tokenizer.error());
    return 0;
  }
  fuzz_check(tokenizer->vocab_size() > 0 && !tokenizer->describe().empty());
  for (const TokenId id : tokenizer->end_ids()) fuzz_check(id >= 0 && id < tokenizer->vocab_size());
  for (const std::string_view text : kTexts) check_text(*tokenizer, text);
  std::vector<TokenId> every(static_cast<std::size_t>(std::min(tokenizer->vocab_size(), 1000)));
  std::iota(every.begin(), every.end(), 0);
  fuzz_check(tokenizer->decode(every, false).has_value());
  return 0;
}
