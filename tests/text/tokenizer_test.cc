#include "sightline/text/tokenizer.h"

#include <gtest/gtest.h>

#include <limits>

#include "tokenizer_fixtures.h"

namespace sightline::text {
namespace {

TEST(TokenizerTest, ByteLevelMergesByRankInsideWords) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_byte_spec()).value();
  const auto id = [&](std::string_view name) { return tokenizer.find_token(name); };
  EXPECT_EQ(encode(tokenizer, "hello"), Ids{id("hello")});
  EXPECT_EQ(encode(tokenizer, "hell w"), (Ids{id("hell"), id(byte_letter(' ') + "w")}));
  EXPECT_EQ(encode(tokenizer, "AAA"), (Ids{id("AA"), id("A")}));
  EXPECT_EQ(encode(tokenizer, ""), Ids{});
  EXPECT_EQ(tokenizer.token_text(id(byte_letter(' ') + "w")), " w");
}

TEST(TokenizerTest, PiecesMergeByScoreAndFallBackToBytes) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_piece_spec()).value();
  const auto id = [&](std::string_view name) { return tokenizer.find_token(name); };
  const std::string blank = "\xE2\x96\x81";
  EXPECT_EQ(encode(tokenizer, "hello"), Ids{id(blank + "hello")});
  EXPECT_EQ(encode(tokenizer, "AAAAA"), (Ids{id(blank), id("AAAA"), id("A")}));
  EXPECT_EQ(encode(tokenizer, "\xC3\xA9"), (Ids{id(blank), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(encode(tokenizer, ""), Ids{});
  EXPECT_EQ(encode(tokenizer, "A", {}), (Ids{1, id(blank), id("A")}))
      << "begin-of-text is the default of this kind";
  TokenizerSpec bare = small_piece_spec();
  bare.add_space_prefix = false;
  EXPECT_EQ(encode(Tokenizer::from_spec(bare).value(), "AA"), Ids{id("AA")});
}

TEST(TokenizerTest, SpecialTokensAreAddedAsTheFileSays) {
  for (const bool bos : {false, true}) {
    for (const bool eos : {false, true}) {
      TokenizerSpec spec = small_byte_spec();
      spec.add_bos = bos;
      spec.add_eos = eos;
      const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
      Ids expected = encode(tokenizer, "hello");
      if (bos) expected.insert(expected.begin(), 257);
      if (eos) expected.push_back(256);
      EXPECT_EQ(encode(tokenizer, "hello", {.add_special = true}), expected);
      EXPECT_EQ(tokenizer.adds_bos(), bos);
      EXPECT_EQ(tokenizer.adds_eos(), eos);
    }
  }
  EXPECT_FALSE(Tokenizer::from_spec(small_byte_spec()).value().adds_bos());
  TokenizerSpec llama3 = small_byte_spec();
  llama3.pre = "llama-bpe";
  EXPECT_TRUE(Tokenizer::from_spec(llama3).value().adds_bos());
}

TEST(TokenizerTest, ControlTokensComeFromTextOnlyWhenAsked) {
  for (const TokenizerSpec& spec : {small_byte_spec(), small_piece_spec()}) {
    const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      if (!tokenizer.is_special(id)) continue;
      const std::string name(tokenizer.token_text(id));
      for (const std::string& text : {name, "a" + name + "b", name + name, name + " " + name}) {
        for (const TokenId got : encode(tokenizer, text)) EXPECT_FALSE(tokenizer.is_special(got)) << text;
        const Ids parsed = encode(tokenizer, text, {.add_special = false, .parse_special = true});
        EXPECT_NE(std::find(parsed.begin(), parsed.end(), id), parsed.end()) << text;
      }
    }
  }
}

TEST(TokenizerTest, WholeWordLookupDoesNotMakeControlTokens) {
  TokenizerSpec spec = small_byte_spec();
  spec.pre = "llama-bpe";  // looks words up whole
  spec.tokens.push_back("stop");
  spec.types.push_back(3);
  spec.tokens.push_back("word");
  spec.types.push_back(1);
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  EXPECT_EQ(encode(tokenizer, "word"), Ids{tokenizer.find_token("word")});
  EXPECT_EQ(encode(tokenizer, "stop").size(), 4u);
}

TEST(TokenizerTest, RunsAreJoinedExceptForControlTokens) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_byte_spec()).value();
  const auto runs_ids = [&](std::vector<TextRun> runs) { return tokenizer.encode_runs(runs, false).value(); };
  const Ids hello = encode(tokenizer, "hello");
  EXPECT_EQ(runs_ids({{"he", true}, {"ll", false}, {"o", true}}), hello) << "borders do not exist for words";
  EXPECT_EQ(runs_ids({{"<|e", true}, {"nd|>", true}}), Ids{256}) << "nor between adjacent runs of one kind";
  const Ids plain = encode(tokenizer, "<|end|>");
  EXPECT_EQ(runs_ids({{"<|e", true}, {"nd|>", false}}), plain);
  EXPECT_EQ(runs_ids({{"<|e", false}, {"nd|>", true}}), plain);
  EXPECT_EQ(runs_ids({{"<|e", true}, {"", false}, {"nd|>", true}}), Ids{256});
  EXPECT_EQ(runs_ids({}), Ids{});
}

TEST(TokenizerTest, UserDefinedTokensAreMatchedInAnyTextLongestFirst) {
  TokenizerSpec spec = small_byte_spec();
  for (const char* name : {"<x>", "<x><y>", "\n\n"}) {
    spec.tokens.emplace_back(name);
    spec.types.push_back(4);
  }
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  EXPECT_EQ(encode(tokenizer, "<x><y><x>\n\n"),
            (Ids{tokenizer.find_token("<x><y>"), tokenizer.find_token("<x>"), tokenizer.find_token("\n\n")}));
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, "<x>\n\n<y>")).value(), "<x>\n\n<y>");
}

TEST(TokenizerTest, EndIdsAreThoseOfTheFileAndTheKnownNames) {
  TokenizerSpec spec = small_byte_spec();
  spec.eot_id = 300 - 44;  // 256 again
  spec.tokens.push_back("<|eot_id|>");
  spec.types.push_back(3);
  spec.tokens.push_back("<|im_end|>");
  spec.types.push_back(1);  // not a control token here
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  const Ids expected = {256, tokenizer.find_token("<|eot_id|>")};
  EXPECT_EQ(Ids(tokenizer.end_ids().begin(), tokenizer.end_ids().end()), expected);
  EXPECT_TRUE(tokenizer.is_end(256));
  EXPECT_FALSE(tokenizer.is_end(255));
}

TEST(TokenizerTest, DecodeStripsTheFirstBlankOnceAndSkipsControlTokens) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_piece_spec()).value();
  const Ids ids = encode(tokenizer, "hello A hello", {});
  EXPECT_EQ(tokenizer.decode(ids).value(), "hello A hello");
  EXPECT_EQ(tokenizer.decode(ids, false).value(), "<s>hello A hello");
  EXPECT_EQ(tokenizer.decode(encode(tokenizer, "  A")).value(), "  A");
  for (const TokenId bad : {-1, tokenizer.vocab_size(), std::numeric_limits<TokenId>::max()}) {
    const Ids one = {bad};
    EXPECT_EQ(tokenizer.decode(one).error().kind, ErrorKind::kInvalidArgument);
    EXPECT_EQ(tokenizer.token_text(bad), "");
    EXPECT_FALSE(tokenizer.is_special(bad));
  }
}

void expect_round_trip(const TokenizerSpec& spec, std::span<const std::string> texts) {
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text, {.add_special = false});
    ASSERT_TRUE(ids) << ids.error().message << text.substr(0, 20);
    EXPECT_TRUE(tokenizer.decode(*ids).value() == text) << text.substr(0, 20);
  }
}

// Rows 52 and 53.
TEST(TokenizerTest, AMillionCharactersOfAnyKindPassAndComeBack) {
  const std::size_t million = 1'000'000;
  const std::string texts[] = {repeat("A", million), repeat("\n", million), repeat("\xCC\x81", million),
                               repeat("a\xD0\xB1\xE4\xB8\xAD", million / 3)};
  expect_round_trip(small_byte_spec(), texts);
  expect_round_trip(small_piece_spec(), texts);
}

TEST(TokenizerTest, LongRunsPassEveryPreTokenizer) {
  const std::size_t length = 20'000;
  const std::string texts[] = {
      repeat(" ", length) + "x",     repeat("hello ", length / 6), repeat("'", length),
      repeat("<|end|>", length / 7), repeat(" \n", length / 2),    repeat("9", length),
      repeat("A", length),           repeat("aB", length / 2),     repeat("!?", length / 2)};
  for (const PreTokenizerRow& row : pre_tokenizer_table()) {
    TokenizerSpec spec = small_byte_spec();
    spec.pre = row.name;
    SCOPED_TRACE(row.name);
    expect_round_trip(spec, texts);
  }
}

TEST(TokenizerTest, InvalidUtf8IsRefusedWithItsOffsetAndZeroBytesPass) {
  const Tokenizer tokenizer = Tokenizer::from_spec(small_byte_spec()).value();
  for (const std::string& good :
       {std::string("a\0b", 3), std::string("\xF4\x8F\xBF\xBF"), std::string("\xEF\xBF\xBE"),
        std::string(1, '\0'), std::string("\xED\x9F\xBF\xEE\x80\x80")}) {
    EXPECT_EQ(tokenizer.decode(encode(tokenizer, good)).value(), good);
  }
  const char* bad[] = {"\xFF",         "\x80",         "\xC3",         "\xC0\x80",         "\xC1\xBF",
                       "\xE0\x80\x80", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                       "\xE2\x82",     "\xF0\x9F\x98", "\xE2\x28\xA1", "\xF0\x80\x80\x80"};
  for (const std::string text : bad) {
    for (const EncodeOptions options : {EncodeOptions{}, EncodeOptions{.parse_special = true}}) {
      const auto ids = tokenizer.encode("ab" + text, options);
      ASSERT_FALSE(ids) << text;
      EXPECT_EQ(ids.error().kind, ErrorKind::kInvalidContent);
      EXPECT_NE(ids.error().message.find("offset 2"), std::string::npos) << ids.error().message;
    }
  }
}

TEST(TokenizerTest, AByteWithoutATokenIsAnErrorNotALoss) {
  TokenizerSpec spec = small_byte_spec();
  spec.tokens[4] = "unused";
  spec.unk_id = 256;
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  const auto ids = tokenizer.encode("a\x04");
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("0x04"), std::string::npos) << ids.error().message;
}

}  // namespace
}  // namespace sightline::text
