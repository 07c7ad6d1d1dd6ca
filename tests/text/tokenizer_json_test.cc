// tokenizer.json: what is implemented, and rows 47 to 51 of the list of bad inputs.
#include <gtest/gtest.h>

#include "sightline/base/json.h"
#include "sightline/text/tokenizer.h"
#include "tokenizer_fixtures.h"

namespace sightline::text {
namespace {

/// small_piece_spec() with merges in place of scores.
Json small_piece_json() {
  const std::string blank = "\xE2\x96\x81";
  JsonObject vocab;
  int id = 0;
  for (const char* name : {"<unk>", "<s>", "</s>"}) vocab.emplace_back(name, id++);
  for (int byte = 0; byte < 256; ++byte) vocab.emplace_back(fmt::format("<0x{:02X}>", byte), id++);
  for (const std::string& name :
       {blank, std::string("a"), std::string("b"), std::string("ab"), blank + "ab"}) {
    vocab.emplace_back(name, id++);
  }
  JsonArray merges = {JsonArray{"a", "b"}, JsonArray{blank, "ab"}};
  Json model = JsonObject{{"type", "BPE"},         {"vocab", std::move(vocab)}, {"merges", std::move(merges)},
                          {"byte_fallback", true}, {"unk_token", "<unk>"},      {"fuse_unk", true}};
  JsonArray added;
  for (int i = 0; i < 3; ++i) {
    added.push_back(JsonObject{{"id", i},
                               {"content", i == 0   ? "<unk>"
                                           : i == 1 ? "<s>"
                                                    : "</s>"},
                               {"special", true}});
  }
  return parse_json(fmt::format(R"({{"added_tokens": {},
    "normalizer": {{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "{}"}},
                   {{"type": "Replace", "pattern": {{"String": " "}}, "content": "{}"}}]}},
    "pre_tokenizer": null,
    "post_processor": {{"type": "TemplateProcessing", "single": [{{"SpecialToken": {{"id": "<s>", "type_id": 0}}}},
                       {{"Sequence": {{"id": "A", "type_id": 0}}}}],
                       "special_tokens": {{"<s>": {{"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}}}},
    "decoder": {{"type": "Sequence", "decoders": [{{"type": "Replace", "pattern": {{"String": "{}"}}, "content": " "}},
                {{"type": "ByteFallback"}}, {{"type": "Fuse"}}, {{"type": "Strip", "content": " ", "start": 1, "stop": 0}}]}},
    "model": {}}})",
                                Json(added).dump(), blank, blank, blank, model.dump()),
                    "test")
      .value();
}

Tokenizer load(const Json& json, std::string_view config = {}) {
  auto tokenizer = Tokenizer::from_json(json.dump(), config);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return *tokenizer;
}

TEST(TokenizerJsonTest, ByteLevelEqualsTheSameVocabularyAsGguf) {
  const Tokenizer json = load(small_byte_json()), gguf = Tokenizer::from_spec(small_byte_spec()).value();
  for (const char* text :
       {"", "hello", " well, AAAAA\n\n x  y", "\xC3\xA9\xF0\x9F\x98\x80", "<|end|>a<|im_start|>"}) {
    for (const bool parse : {false, true}) {
      const EncodeOptions options{.add_special = false, .parse_special = parse};
      EXPECT_EQ(json.encode(text, options).value(), gguf.encode(text, options).value()) << text;
    }
    EXPECT_EQ(json.decode(json.encode(text, {}).value()).value(),
              gguf.decode(gguf.encode(text, {}).value()).value());
  }
}

TEST(TokenizerJsonTest, PieceLikeTokenizersNormaliseFallBackAndStrip) {
  const Tokenizer tokenizer = load(small_piece_json());
  const auto id = [&](std::string_view name) { return tokenizer.find_token(name); };
  const std::string blank = "\xE2\x96\x81";
  EXPECT_EQ(tokenizer.encode("ab ab").value(), (Ids{1, id(blank + "ab"), id(blank + "ab")}));
  EXPECT_EQ(tokenizer.encode("\xC3\xA9").value(), (Ids{1, id(blank), id("<0xC3>"), id("<0xA9>")}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab \xC3\xA9").value()).value(), "ab \xC3\xA9");
  const Ids spelled = tokenizer.encode("<s></s><unk>", {.add_special = false}).value();
  for (const TokenId got : spelled) {
    EXPECT_FALSE(tokenizer.is_special(got));
  }
}

TEST(TokenizerJsonTest, ConfigNamesTheSpecialTokens) {
  const Tokenizer tokenizer =
      load(small_byte_json(), R"({"bos_token": {"content": "<|im_start|>"}, "eos_token": "<|end|>",
      "pad_token": null, "add_bos_token": true})");
  EXPECT_EQ(tokenizer.bos_id(), 257);
  EXPECT_EQ(tokenizer.eos_id(), 256);
  EXPECT_EQ(tokenizer.pad_id(), -1);
  EXPECT_TRUE(tokenizer.is_end(256));
  EXPECT_EQ(tokenizer.encode("").value(), Ids{257});
  for (const char* config :
       {"[", "{\"bos_token\": 3}", "{\"bos_token\": \"nope\"}", "{\"add_bos_token\": 1}"}) {
    const auto bad = Tokenizer::from_json(small_byte_json().dump(), config);
    ASSERT_FALSE(bad) << config;
    EXPECT_EQ(bad.error().kind, ErrorKind::kInvalidContent);
    EXPECT_NE(bad.error().message.find("tokenizer_config.json"), std::string::npos) << bad.error().message;
  }
}

TEST(TokenizerJsonTest, AddedTokensTakeWhiteSpaceAlongAsDeclared) {
  Json json = small_byte_json();
  member(json, "added_tokens")
      .push_back(JsonObject{{"id", 300},
                            {"content", "<m>"},
                            {"special", false},
                            {"normalized", false},
                            {"lstrip", true},
                            {"rstrip", true}});
  const Tokenizer tokenizer = load(json);
  EXPECT_EQ(tokenizer.encode("A \n<m>\xE3\x80\x80 A").value(), (Ids{'A', 300, 'A'}));
  EXPECT_EQ(tokenizer.vocab_size(), 301) << "ids between are unused";
  EXPECT_EQ(tokenizer.token_text(290), "");
}

TEST(TokenizerJsonTest, SplitBehavioursCutAsNamed) {
  const Regex dash = Regex::compile("-").value();
  const auto pieces = [&](SplitBehavior behavior, bool invert = false) {
    const std::string_view text = "--a-b";
    const SplitStep step{dash, behavior, invert};
    std::vector<std::string> out;
    const auto ranges = split_text(text, std::span(&step, 1));
    for (const ByteRange& range : *ranges) {
      out.emplace_back(text.substr(range.begin, range.end - range.begin));
    }
    return out;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces(SplitBehavior::kIsolated), (Pieces{"-", "-", "a", "-", "b"}));
  EXPECT_EQ(pieces(SplitBehavior::kRemoved), (Pieces{"a", "b"}));
  EXPECT_EQ(pieces(SplitBehavior::kRemoved, true), (Pieces{"-", "-", "-"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithPrevious), (Pieces{"-", "-", "a-", "b"}));
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithNext), (Pieces{"-", "-a", "-b"}));
  EXPECT_EQ(pieces(SplitBehavior::kContiguous), (Pieces{"--", "a", "-", "b"}));
}

TEST(TokenizerJsonTest, EveryNamedPreTokenizerCompiles) {
  for (const PreTokenizerRow& row : pre_tokenizer_table()) {
    EXPECT_EQ(find_pre_tokenizer(row.name), &row) << row.name << " is there twice";
    for (const std::string_view pattern : row.patterns) EXPECT_TRUE(Regex::compile(pattern)) << row.name;
  }
}

void expect_refused(const Json& json, std::string_view text) {
  const auto tokenizer = Tokenizer::from_json(json.dump());
  ASSERT_FALSE(tokenizer) << text;
  EXPECT_EQ(tokenizer.error().kind, ErrorKind::kInvalidContent);
  EXPECT_TRUE(tokenizer.error().message.starts_with("tokenizer.json: ")) << tokenizer.error().message;
  EXPECT_NE(tokenizer.error().message.find(text), std::string::npos) << tokenizer.error().message;
  EXPECT_LT(tokenizer.error().message.size(), 600u);
}

// Row 47.
TEST(TokenizerJsonTest, WhatIsNoSuchFileIsRefused) {
  const std::string nested(1'000'000, '['), nested_objects = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "{\"a\":";
    return text;
  }();
  for (const std::string& text :
       {std::string(), std::string("not JSON"), std::string("{"), std::string("null"), std::string("[]"),
        std::string("{}"), std::string("{\"model\": 3}"), std::string("{\"model\": {}}"), nested,
        nested_objects, std::string("\xFF"), std::string("{\"model\": \"\\ud800\"}")}) {
    const auto tokenizer = Tokenizer::from_json(text);
    ASSERT_FALSE(tokenizer) << text.substr(0, 20);
    EXPECT_EQ(tokenizer.error().kind, ErrorKind::kInvalidContent);
  }
  EXPECT_FALSE(Tokenizer::from_json(std::string(std::size_t{200} << 20, ' '))) << "over the limit of 128 MiB";
}

// Row 48.
TEST(TokenizerJsonTest, BadMergesAreRefused) {
  const std::pair<Json, const char*> rows[] = {
      {"h zq", "'zq' is not in the vocabulary"},
      {JsonArray{"zq", "h"}, "'zq' is not in the vocabulary"},
      {"hello hello", "'hellohello' is not"},
      {"h", "expected two parts"},
      {"h e l", "expected two parts"},
      {JsonArray{"h"}, "expected a text or two"},
      {JsonArray{"h", "e", "l"}, "expected a text"},
      {JsonArray{"", "h"}, "expected two parts"},
      {JsonArray{1, 2}, "expected a text"},
      {5, "expected a text"},
      {nullptr, "expected a text"},
      {" ", "expected two parts"},
  };
  for (const auto& [merge, text] : rows) {
    Json json = small_byte_json();
    member(member(json, "model"), "merges") = JsonArray{"h e", merge};
    expect_refused(json, std::string("model.merges[1]: ") + text);
  }
  Json json = small_byte_json();
  member(member(json, "model"), "merges") = "h e";
  expect_refused(json, "model.merges");
}

// Row 49.
TEST(TokenizerJsonTest, BadIdsAreRefused) {
  for (const Json& id : {Json(-1), Json(std::int64_t{1} << 31), Json(std::int64_t{1} << 62), Json(1.5),
                         Json("1"), Json(nullptr), Json(70), Json(1'000'265)}) {
    Json json = small_byte_json();
    member(member(json, "model"), "vocab").set("fresh", id);
    expect_refused(json, "model.vocab");
    json = small_byte_json();
    member(json, "added_tokens").push_back(JsonObject{{"id", id}, {"content", "fresh"}});
    const auto tokenizer = Tokenizer::from_json(json.dump());
    EXPECT_FALSE(tokenizer) << id.dump();
  }
  Json json = small_byte_json();
  member(json, "added_tokens").push_back(JsonObject{{"id", 400}, {"content", "hello"}});
  expect_refused(json, "added_tokens[2]");
  json = small_byte_json();
  member(member(json, "model"), "vocab").set("fresh", 300);
  EXPECT_EQ(load(json).vocab_size(), 301) << "small gaps are unused ids";
}

// Row 50.
TEST(TokenizerJsonTest, WhatWeDoNotImplementIsRefusedByName) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"pre_tokenizer", R"({"type": "BertPreTokenizer"})",
       "pre_tokenizer: unsupported type 'BertPreTokenizer'"},
      {"pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})",
       "pre_tokenizer.pretokenizers[0]: unsupported type 'UnicodeScripts'"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
       "unsupported pattern"},
      {"pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "(?<n>a)\\g<n>\\G\\X"}, "behavior": "Isolated"})",
       "unsupported pattern"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Sideways"})",
       "unsupported behavior"},
      {"pre_tokenizer", R"({"type": "Split", "pattern": 3, "behavior": "Isolated"})", "pattern: expected"},
      {"pre_tokenizer", R"({"type": 3})", "type: expected a string"},
      {"pre_tokenizer", R"([])", "pre_tokenizer: expected an object"},
      {"pre_tokenizer", R"({"type": "Sequence"})", "pretokenizers: expected an array"},
      {"normalizer", R"({"type": "Lowercase"})", "normalizer: unsupported type 'Lowercase'"},
      {"normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AA=="})",
       "unsupported type 'Precompiled'"},
      {"normalizer", R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": "b"})",
       "unsupported pattern"},
      {"post_processor", R"({"type": "RobertaProcessing"})", "post_processor: unsupported type"},
      {"post_processor", R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}]})",
       "single: expected"},
      {"post_processor", R"({"type": "TemplateProcessing", "single": []})", "the text is missing"},
      {"decoder", R"({"type": "WordPiece"})", "decoder: unsupported type 'WordPiece'"},
      {"decoder", R"({"type": "Metaspace"})", "decoder: ByteLevel must stand"},
      {"model", R"({"type": "Unigram", "vocab": []})", "model: unsupported type 'Unigram'"},
      {"model", R"({"type": "BPE", "vocab": [], "merges": []})", "model.vocab"},
  };
  for (const auto& [key, text, message] : rows) {
    Json json = small_byte_json();
    member(json, key) = parse_json(text, "test").value();
    expect_refused(json, message);
  }
  for (const auto& [key, value, message] : std::initializer_list<std::tuple<const char*, Json, const char*>>{
           {"dropout", 0.1, "dropout"},
           {"continuing_subword_prefix", "##", "continuing_subword_prefix"},
           {"end_of_word_suffix", "</w>", "end_of_word_suffix"},
           {"unk_token", "nope", "unk_token"},
           {"byte_fallback", 1, "byte_fallback: expected true or false"}}) {
    Json json = small_byte_json();
    member(member(json, "model"), key) = value;
    expect_refused(json, message);
  }
}

// Row 51.
TEST(TokenizerJsonTest, AddedTokensAreLimitedInBytesNotInNumber) {
  const std::pair<Json, const char*> rows[] = {
      {JsonObject{{"id", 300}, {"content", ""}}, "content: expected 1 to"},
      {JsonObject{{"id", 300}}, "content: expected 1 to"},
      {JsonObject{{"id", 300}, {"content", std::string(5000, 'x')}}, "content: expected 1 to"},
      {JsonObject{{"id", 300}, {"content", "x<"}, {"single_word", true}}, "unsupported: single_word"},
      {JsonObject{{"id", 256}, {"content", "other"}}, "id 256 belongs to"},
      {5, "id: expected"},
  };
  for (const auto& [entry, text] : rows) {
    Json json = small_byte_json();
    member(json, "added_tokens").push_back(entry);
    expect_refused(json, text);
  }
  Json json = small_byte_json();
  for (int i = 0; i < 100'000; ++i) {
    member(json, "added_tokens")
        .push_back(JsonObject{{"id", 300 + i}, {"content", fmt::format("<|aaaaaaaaaaaa{}|>", i)}});
  }
  EXPECT_EQ(load(json).encode("<|aaaaaaaaaaaa99999|>").value(), Ids{100'299});
}

// transformers: the word of tokenizer_config.json wins where ByteLevel is the whole pre-tokenizer.
TEST(TokenizerJsonTest, TheConfigSaysWhetherABlankIsAdded) {
  const Json json = small_byte_json();
  const auto ids = [&](const Json& root, std::string_view config) {
    return Tokenizer::from_json(root.dump(), config).value().encode(" w", {}).value();
  };
  const Ids without = ids(json, "");
  EXPECT_EQ(ids(json, R"({"add_prefix_space": false})"), without);
  const auto with_blank = Tokenizer::from_json(json.dump(), R"({"add_prefix_space": true})").value();
  EXPECT_EQ(with_blank.encode("w").value(), without);
  Json adds = json;
  member(member(adds, "pre_tokenizer"), "add_prefix_space") = true;
  EXPECT_EQ(Tokenizer::from_json(adds.dump(), R"({"add_prefix_space": false})").value().encode("w").value(),
            Ids{'w'});
  Json sequence = json;
  member(sequence, "pre_tokenizer") =
      JsonObject{{"type", "Sequence"}, {"pretokenizers", JsonArray{*json.find("pre_tokenizer")}}};
  EXPECT_EQ(
      Tokenizer::from_json(sequence.dump(), R"({"add_prefix_space": true})").value().encode("w").value(),
      Ids{'w'});
  EXPECT_FALSE(Tokenizer::from_json(json.dump(), R"({"add_prefix_space": "yes"})"));
}

}  // namespace
}  // namespace sightline::text
