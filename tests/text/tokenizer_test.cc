#include "sightline/text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tokenizer_fixtures.h"

namespace sightline::text {
namespace {

using Ids = std::vector<TokenId>;

Ids encode(const Tokenizer& tokenizer, std::string_view text,
           EncodeOptions options = {.add_special = false}) {
  const auto ids = tokenizer.encode(text, options);
  EXPECT_TRUE(ids) << ids.error().message;
  return ids.value_or(Ids{});
}

std::string repeat(std::string_view text, std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += text;
  return out;
}

// ---- meaning
// --------------------------------------------------------------------------------------------------

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

// ---- row 52, 53
// -----------------------------------------------------------------------------------------------

void expect_round_trip(const TokenizerSpec& spec, std::span<const std::string> texts) {
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  for (const std::string& text : texts) {
    const auto ids = tokenizer.encode(text, {.add_special = false});
    ASSERT_TRUE(ids) << ids.error().message << text.substr(0, 20);
    EXPECT_TRUE(tokenizer.decode(*ids).value() == text) << text.substr(0, 20);
  }
}

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

// ---- rows 27 to 29, 48 to 51 of a GGUF file
// -------------------------------------------------------------------

struct BadSpec {
  const char* name;
  std::function<void(TokenizerSpec&)> spoil;
  const char* message;  // what the error must name
};

void expect_refused(const TokenizerSpec& good, const std::vector<BadSpec>& rows) {
  ASSERT_TRUE(validate(good));
  for (const BadSpec& row : rows) {
    TokenizerSpec spec = good;
    row.spoil(spec);
    const auto tokenizer = Tokenizer::from_spec(spec);
    ASSERT_FALSE(tokenizer) << row.name;
    EXPECT_FALSE(validate(spec)) << row.name;
    EXPECT_EQ(tokenizer.error().kind, ErrorKind::kInvalidContent) << row.name;
    EXPECT_TRUE(tokenizer.error().message.starts_with("small.gguf: tokenizer.ggml."))
        << tokenizer.error().message;
    EXPECT_NE(tokenizer.error().message.find(row.message), std::string::npos)
        << row.name << ": " << tokenizer.error().message;
    EXPECT_LT(tokenizer.error().message.size(), 400u);
  }
}

TEST(TokenizerSpecTest, BadByteLevelVocabulariesAreRefusedByField) {
  using Spec = TokenizerSpec;
  expect_refused(
      small_byte_spec(),
      {
          {"no model", [](Spec& s) { s.model = ""; }, "model"},
          {"other model", [](Spec& s) { s.model = "bert"; }, "model: unsupported kind 'bert'"},
          {"no pre", [](Spec& s) { s.pre = ""; }, "pre: the name of the pre-tokenizer is missing"},
          {"unknown pre", [](Spec& s) { s.pre = "my-own"; }, "pre: unknown pre-tokenizer 'my-own'"},
          {"unknown override", [](Spec& s) { s.override_pre = "nope"; }, "pre: unknown pre-tokenizer 'nope'"},
          {"no tokens", [](Spec& s) { s.tokens.clear(); }, "tokens: expected tokens"},
          {"short types", [](Spec& s) { s.types.pop_back(); }, "token_type: expected 265"},
          {"long types", [](Spec& s) { s.types.push_back(1); }, "token_type: expected 265"},
          {"short scores", [](Spec& s) { s.scores = {1}; }, "scores: expected 265"},
          {"type 0", [](Spec& s) { s.types[3] = 0; }, "token_type[3]"},
          {"type 7", [](Spec& s) { s.types[3] = 7; }, "token_type[3]"},
          {"type -1", [](Spec& s) { s.types[3] = -1; }, "token_type[3]"},
          {"no merges", [](Spec& s) { s.merges.clear(); }, "merges: byte-level"},
          {"merge of 1 part", [](Spec& s) { s.merges[1] = "he"; }, "merges[1]: expected two parts"},
          {"merge of 3 parts", [](Spec& s) { s.merges[1] = "h e l"; }, "merges[1]: expected two parts"},
          {"merge of nothing", [](Spec& s) { s.merges[1] = ""; }, "merges[1]: expected two parts"},
          {"merge, no left", [](Spec& s) { s.merges[1] = " e"; }, "merges[1]: expected two parts"},
          {"merge, no right", [](Spec& s) { s.merges[1] = "h "; }, "merges[1]: expected two parts"},
          {"merge, unknown left", [](Spec& s) { s.merges[1] = "zq e"; }, "merges[1]: 'zq' is not in"},
          {"merge, unknown right", [](Spec& s) { s.merges[1] = "h zq"; }, "merges[1]: 'zq' is not in"},
          {"merge, unknown result", [](Spec& s) { s.merges[1] = "hello hello"; },
           "merges[1]: 'hellohello' is not in"},
          {"merge to a control token",
           [](Spec& s) {
             s.tokens[256] = "hw";
             s.merges[1] = "h w";
           },
           "merges[1]: makes the control"},
          {"one token twice", [](Spec& s) { s.tokens[70] = s.tokens[80]; }, "is also the token"},
          {"empty control token", [](Spec& s) { s.tokens[256] = ""; }, "tokens[256]"},
          {"long control token", [](Spec& s) { s.tokens[256] = std::string(5000, 'x'); }, "tokens[256]"},
          {"invalid UTF-8", [](Spec& s) { s.tokens[70] = "a\xFF"; }, "tokens[70]: expected UTF-8"},
          {"bos = size", [](Spec& s) { s.bos_id = 265; }, "bos_token_id"},
          {"eos = 2^32-1", [](Spec& s) { s.eos_id = 4294967295; }, "eos_token_id"},
          {"eos = -1", [](Spec& s) { s.eos_id = -1; }, "eos_token_id"},
          {"unk = 2^31", [](Spec& s) { s.unk_id = 2147483648; }, "unknown_token_id"},
          {"pad = 2^63-1", [](Spec& s) { s.pad_id = INT64_MAX; }, "padding_token_id"},
          {"eot", [](Spec& s) { s.eot_id = 265; }, "eot_token_id"},
          {"eom", [](Spec& s) { s.eom_id = 265; }, "eom_token_id"},
          {"add_bos without bos",
           [](Spec& s) {
             s.bos_id.reset();
             s.add_bos = true;
           },
           "add_bos_token"},
          {"add_eos without eos",
           [](Spec& s) {
             s.eos_id.reset();
             s.add_eos = true;
           },
           "add_eos_token"},
          {"squeezed white space", [](Spec& s) { s.remove_extra_whitespaces = true; },
           "remove_extra_whitespaces"},
      });
}

TEST(TokenizerSpecTest, BadPieceVocabulariesAreRefusedByField) {
  using Spec = TokenizerSpec;
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  expect_refused(small_piece_spec(),
                 {
                     {"no scores", [](Spec& s) { s.scores.clear(); }, "scores: expected 280"},
                     {"NaN score", [=](Spec& s) { s.scores[5] = nan; }, "scores[5]"},
                     {"infinite score", [=](Spec& s) { s.scores[5] = -infinity; }, "scores[5]"},
                     {"<0x-1>", [](Spec& s) { s.tokens[10] = "<0x-1>"; }, "tokens[10]: expected <0x00>"},
                     {"<0xZZ>", [](Spec& s) { s.tokens[10] = "<0xZZ>"; }, "tokens[10]: expected <0x00>"},
                     {"<0x", [](Spec& s) { s.tokens[10] = "<0x"; }, "tokens[10]: expected <0x00>"},
                     {"<0x100>", [](Spec& s) { s.tokens[10] = "<0x100>"; }, "tokens[10]: expected <0x00>"},
                     {"a byte twice", [](Spec& s) { s.tokens[20] = "<0x0a>"; }, "is there twice"},
                     {"short types", [](Spec& s) { s.types.pop_back(); }, "token_type: expected 280"},
                 });
}

TEST(TokenizerSpecTest, WhatIsUnusualButCleanLoads) {
  TokenizerSpec spec = small_byte_spec();
  spec.tokens.push_back("");  // converters leave empty names
  spec.tokens.push_back("");
  spec.tokens.push_back(std::string(std::size_t{4} << 20, 'y'));
  spec.types.insert(spec.types.end(), {1, 5, 1});
  EXPECT_TRUE(Tokenizer::from_spec(spec));
  TokenizerSpec stated = small_byte_spec();
  stated.pre = "my-own";
  stated.override_pre = "gpt-2";
  EXPECT_TRUE(Tokenizer::from_spec(stated));
  TokenizerSpec untyped = small_byte_spec();
  untyped.types.clear();
  const Tokenizer tokenizer = Tokenizer::from_spec(untyped).value();
  EXPECT_TRUE(tokenizer.is_special(256)) << "the ids that the file calls eos and bos are control tokens";
}

// Row 51.
TEST(TokenizerSpecTest, AHundredThousandAddedTokensThatSharePrefixesWork) {
  TokenizerSpec spec = small_byte_spec();
  for (int i = 0; i < 100'000; ++i) {
    spec.tokens.push_back(fmt::format("<|aaaaaaaaaaaaaaaa{}|>", i));
    spec.types.push_back(i % 2 == 0 ? 3 : 4);
  }
  const Tokenizer tokenizer = Tokenizer::from_spec(spec).value();
  const std::string text =
      "<|aaaaaaaaaaaaaaaa7|><|aaaaaaaaaaaaaaaa99998|>" + repeat("<|aaaaaaaaaaaaaaa", 20'000);
  const Ids ids = encode(tokenizer, text, {.add_special = false, .parse_special = true});
  EXPECT_EQ(ids[0], tokenizer.find_token("<|aaaaaaaaaaaaaaaa7|>"));
  EXPECT_EQ(ids[1], tokenizer.find_token("<|aaaaaaaaaaaaaaaa99998|>"));
  EXPECT_EQ(tokenizer.decode(ids, false).value(), text);
}

// ---- streaming
// ------------------------------------------------------------------------------------------------

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
