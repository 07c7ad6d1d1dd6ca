// Ids become text as they come, whole characters only.
#include <gtest/gtest.h>

#include "tokenizer_fixtures.h"

namespace sightline::text {
namespace {

TEST(DetokenizerTest, PiecesAreWholeCharactersAndJoinToTheText) {
  const std::string text = "hello \xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80 A\xCC\x81\n";
  for (const TokenizerSpec& spec : {small_byte_spec(), small_piece_spec()}) {
    const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
    Detokenizer detokenizer(tokenizer);
    for (int round = 0; round < 2; ++round) {  // flush starts anew
      std::string joined;
      for (const TokenId id : encode(tokenizer, text)) {
        const std::string piece = detokenizer.push(id);
        EXPECT_EQ(find_invalid_utf8(piece), std::string::npos);
        EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
        joined += piece;
      }
      EXPECT_EQ(joined, text);
      EXPECT_EQ(detokenizer.flush(), "");
    }
  }
}

TEST(DetokenizerTest, WhatCannotBecomeACharacterIsReplaced) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_byte_spec()).value();
  const std::string replacement = "\xEF\xBF\xBD";
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.flush(), replacement) << "an incomplete end is one replacement";
  EXPECT_EQ(detokenizer.push(0xE4), "");
  EXPECT_EQ(detokenizer.push('a'), replacement + "a");
  EXPECT_EQ(detokenizer.push(0xFF), replacement);
  EXPECT_EQ(detokenizer.push(-1), replacement);
  EXPECT_EQ(detokenizer.push(tokenizer.vocab_size()), replacement);
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push(256), "") << "a skipped control token does not cut a character";
  EXPECT_EQ(detokenizer.push(0xA9), "\xC3\xA9");
  EXPECT_EQ(Detokenizer(tokenizer, false).push(256), "<|end|>");
}

TEST(DetokenizerTest, AContinuationKeepsItsFirstBlank) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_piece_spec()).value();
  const TokenId hello = tokenizer.find_token("\xE2\x96\x81hello");
  Detokenizer at_start(tokenizer), after_text(tokenizer, true, false);
  EXPECT_EQ(at_start.push(1), "");
  EXPECT_EQ(at_start.push(hello), "hello");
  EXPECT_EQ(at_start.push(hello), " hello");
  EXPECT_EQ(after_text.push(hello), " hello");
}

}  // namespace
}  // namespace sightline::text
