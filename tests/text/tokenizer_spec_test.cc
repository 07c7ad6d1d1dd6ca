// Fields of a GGUF vocabulary: bad-input rows 27 to 29 and 48 to 51, each refused by its field.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tokenizer_fixtures.h"

namespace sightline::text {
namespace {

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
          {"bos missing where texts begin with it",
           [](Spec& s) {
             s.pre = "llama-bpe";
             s.bos_id.reset();
           },
           "bos_token_id: missing"},
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

TEST(TokenizerSpecTest, TokensThatAreNoUtf8AreBytesThatOnlyIdsGive) {
  for (TokenizerSpec spec : {small_byte_spec(), small_piece_spec()}) {
    const auto id = static_cast<TokenId>(spec.tokens.size());
    spec.tokens.push_back("a\xFF");
    spec.types.push_back(1);
    if (!spec.scores.empty()) spec.scores.push_back(5);
    const auto tokenizer = Tokenizer::from_spec(spec);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->token_text(id), "a\xFF");
    EXPECT_EQ(tokenizer->decode(Ids{id}).value(), "a\xFF");
    EXPECT_EQ(Detokenizer(*tokenizer).push(id), "a\xEF\xBF\xBD");
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, "hello")).value(), "hello");
  }
}

TEST(TokenizerSpecTest, ATextWithoutABeginningTokenIsStatedNotGuessed) {
  TokenizerSpec spec = small_piece_spec();
  spec.bos_id.reset();
  const auto refused = Tokenizer::from_spec(spec);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("bos_token_id: missing"), std::string::npos)
      << refused.error().message;
  spec.add_bos = false;
  EXPECT_TRUE(Tokenizer::from_spec(spec));
  TokenizerSpec bytes = small_byte_spec();
  bytes.bos_id.reset();
  EXPECT_TRUE(Tokenizer::from_spec(bytes)) << "texts of this kind begin with nothing";
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

}  // namespace
}  // namespace sightline::text
