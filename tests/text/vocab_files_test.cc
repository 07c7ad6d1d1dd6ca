// Token ids of the vocabularies that llama.cpp publishes with its own tests, and of SmolLM2.
#include <gtest/gtest.h>

#include <charconv>

#include "sightline/base/file.h"
#include "sightline/base/json.h"
#include "tokenizer_fixtures.h"

namespace sightline::text {
namespace {

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(separator, at)) != std::string::npos;
       at = found + separator.size()) {
    parts.push_back(text.substr(at, found - at));
  }
  parts.push_back(text.substr(at));
  return parts;
}

std::vector<TokenId> parse_ids(const std::string& line) {
  std::vector<TokenId> ids;
  const char* at = line.data();
  const char* end = at + line.size();
  while (at < end) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    TokenId id = -1;
    at = std::from_chars(at, end, id).ptr;
    ids.push_back(id);
  }
  return ids;
}

class VocabFileTest : public testing::TestWithParam<const char*> {};

TEST_P(VocabFileTest, IdsEqualThePublishedOnesAndDecodeBack) {
  const std::string name = fmt::format("vocab/ggml-vocab-{}.gguf", GetParam());
  const auto path = test_data(name);
  if (path.empty()) GTEST_SKIP() << "SIGHTLINE_TEST_DATA/" << name << " is absent";
  auto spec = spec_from_gguf(path);
  ASSERT_TRUE(spec) << spec.error().message;
  const auto tokenizer = Tokenizer::from_spec(*spec);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  auto inputs = split(read_file(path.string() + ".inp").value(), "\n__ggml_vocab_test__\n");
  inputs.pop_back();  // the last string has a separator too
  auto outputs = split(read_file(path.string() + ".out").value(), "\n");
  if (outputs.back().empty()) outputs.pop_back();
  ASSERT_EQ(inputs.size(), 46u);
  ASSERT_EQ(outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (const bool parse_special : {false, true}) {
      const auto ids = tokenizer->encode(inputs[i], {.add_special = false, .parse_special = parse_special});
      ASSERT_TRUE(ids) << ids.error().message;
      EXPECT_EQ(*ids, parse_ids(outputs[i])) << "string " << i << ": '" << inputs[i] << "'";
    }
    const auto text = tokenizer->decode(parse_ids(outputs[i]));
    ASSERT_TRUE(text);
    EXPECT_EQ(*text, inputs[i]) << "string " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Published, VocabFileTest,
                         testing::Values("deepseek-coder", "gpt-2", "llama-spm", "phi-3", "starcoder"));

TEST(SmolLm2TokenizerTest, GoldenRowsAreEqualWithAndWithoutSpecialTokens) {
  const auto golden_path = test_data("smollm2/golden.json");
  if (golden_path.empty()) GTEST_SKIP() << "SIGHTLINE_TEST_DATA/smollm2/golden.json is absent";
  const auto model_path = smollm2_file();
  if (model_path.empty()) GTEST_SKIP() << "SIGHTLINE_SMOLLM2 names no file";
  const auto tokenizer = Tokenizer::from_spec(spec_from_gguf(model_path).value());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const Json golden = parse_json(read_file(golden_path).value(), "golden.json").value();
  const JsonArray& rows = *golden.find("tokenizer")->as_array();
  ASSERT_EQ(rows.size(), 11u);
  for (const Json& row : rows) {
    const std::string& text = *row.find("text")->as_string();
    const auto ids_of = [&](const char* key) {
      std::vector<TokenId> ids;
      for (const Json& id : *row.find(key)->as_array()) ids.push_back(static_cast<TokenId>(*id.as_int()));
      return ids;
    };
    const auto parsed = ids_of("ids_special_parsed");
    const auto plain = row.find("ids_plain")->as_array() != nullptr ? ids_of("ids_plain") : parsed;
    EXPECT_EQ(tokenizer->encode(text, {.add_special = false, .parse_special = true}).value(), parsed) << text;
    EXPECT_EQ(tokenizer->encode(text, {.add_special = false, .parse_special = false}).value(), plain) << text;
    EXPECT_EQ(tokenizer->decode(plain).value(), text);
  }
  const std::vector<TokenId> ends = {0, 2};
  EXPECT_EQ(std::vector<TokenId>(tokenizer->end_ids().begin(), tokenizer->end_ids().end()), ends);
  EXPECT_FALSE(tokenizer->adds_bos());
}

}  // namespace
}  // namespace sightline::text
