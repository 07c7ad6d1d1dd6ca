// What info and the text side say of a file: vocabularies, templates, memory, and that no weights are read.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "model/model_runner.h"
#include "model/text_fixtures.h"
#include "sightline/base/file.h"
#include "sightline/formats/gguf_writer.h"
#include "sightline/model/model_text.h"

namespace sightline {
namespace {

using namespace testing;  // NOLINT: fixtures of this folder

constexpr int kTokens = kByteVocabularySize;

class ModelInfoTest : public ::testing::Test {
 protected:
  ModelInfoTest() {
    ModelSpec spec = small_llama_spec();
    spec.vocab_size = kTokens;
    model_ = random_model(spec, 80);
    metadata_ = llama_metadata(spec);
    for (GgufEntry& entry : byte_vocabulary()) metadata_.push_back(std::move(entry));
  }
  std::string write(const Entries& metadata) {
    const std::string path = folder_.file("m.gguf");
    write_llama_gguf(path, model_, metadata);
    return path;
  }
  std::string write_vocabulary_only(const Entries& metadata) {
    const std::string path = folder_.file("v.gguf");
    auto writer = create_gguf(path, metadata, {}, true);
    EXPECT_TRUE(writer && writer->commit());
    return path;
  }

  TempFolder folder_;
  TestModel model_;
  Entries metadata_;
};

TEST_F(ModelInfoTest, TokenizerAndTemplateAreNamed) {
  set_entry(metadata_, "tokenizer.chat_template",
            std::string("{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}"));
  const std::string path = write(metadata_);
  const auto info = read_model_info(path);
  ASSERT_TRUE(info) << info.error().message;
  ASSERT_TRUE(info->tokenizer);
  EXPECT_NE(info->tokenizer->find("262"), std::string::npos);
  EXPECT_TRUE(info->has_chat_template);
  const auto text = load_model_text(path);
  ASSERT_TRUE(text) << text.error().message;
  ASSERT_TRUE(text->chat_template);
  const ChatMessage message{"user", "ab"};
  const auto rendered = text->chat_template->render({&message, 1}, false);
  ASSERT_TRUE(rendered) << rendered.error().message;
  EXPECT_EQ(*rendered, "<s>ab</s>");
}

TEST_F(ModelInfoTest, VocabularyOnlyFilesAreReadAndSaySoButDoNotLoad) {
  Entries metadata = byte_vocabulary();
  // Such files name an architecture that is none of ours.
  set_entry(metadata, "general.architecture", std::string("phi3"));
  const std::string path = write_vocabulary_only(metadata);
  const auto info = read_model_info(path);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_TRUE(info->vocabulary_only);
  EXPECT_TRUE(info->tokenizer);
  EXPECT_TRUE(load_model_text(path));
  ThreadPool pool(1);
  const auto model = Model::load(path, {}, pool);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().kind, ErrorKind::kInvalidContent);
}

// Bad-input rows 27 and 29, through the file.
TEST_F(ModelInfoTest, BadTokenizerFieldsAreRefusedByKey) {
  const std::pair<std::string, GgufValue> cases[] = {
      {"tokenizer.ggml.bos_token_id", std::uint32_t{kTokens}},
      {"tokenizer.ggml.eos_token_id", std::uint32_t{0xffffffff}},
      {"tokenizer.ggml.eos_token_id", std::string("</s>")},
      {"tokenizer.ggml.scores", GgufArray(std::vector<std::uint8_t>(kTokens, 0))},
      {"tokenizer.ggml.scores", GgufArray(std::vector<float>(kTokens - 1, 0.0F))},
      {"tokenizer.ggml.token_type", GgufArray(std::vector<float>(kTokens, 1.0F))},
      {"tokenizer.ggml.add_bos_token", std::uint32_t{1}},
      {"tokenizer.ggml.model", std::string("wordpieces")},
      {"tokenizer.chat_template", std::uint32_t{1}},
  };
  for (const auto& [key, value] : cases) {
    SCOPED_TRACE(key + " = " + describe(value));
    Entries metadata = metadata_;
    set_entry(metadata, key, value);
    const std::string path = write(metadata);
    for (const auto& error : {read_model_info(path).error(), load_model_text(path).error()}) {
      EXPECT_EQ(error.kind, ErrorKind::kInvalidContent) << error.message;
      // A bad id is named by its field of the tokenizer.
      EXPECT_NE(error.message.find(key.substr(key.rfind('.') + 1)), std::string::npos) << error.message;
    }
  }
}

TEST_F(ModelInfoTest, UnknownTokenizerKeysAreRefusedUnlessStatedToBeWithoutMeaning) {
  set_entry(metadata_, "tokenizer.ggml.fim_pre_token_id", std::uint32_t{5});
  EXPECT_TRUE(read_model_info(write(metadata_)));
  set_entry(metadata_, "tokenizer.ggml.escape_rules", true);
  const std::string path = write(metadata_);
  for (const auto& error : {read_model_info(path).error(), load_model_text(path).error()}) {
    EXPECT_EQ(error.kind, ErrorKind::kInvalidContent);
    EXPECT_NE(error.message.find("tokenizer.ggml.escape_rules"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("--ignore-key"), std::string::npos) << error.message;
  }
  LoadOptions options;
  options.ignored_keys = {"tokenizer.ggml.escape_rules"};
  EXPECT_TRUE(read_model_info(path, options));
  EXPECT_TRUE(load_model_text(path, options));
}

TEST_F(ModelInfoTest, StatedKeysStandForMissingOnesReplaceOthersAndAreNoted) {
  LoadOptions options;
  options.stated_keys = {{"llama.attention.head_count", 4}, {"tokenizer.ggml.add_bos_token", false}};
  remove_entry(metadata_, "llama.attention.head_count");
  const std::string path = write(metadata_);
  const auto missing = read_model_info(path);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("--override-kv"), std::string::npos) << missing.error().message;
  const auto info = read_model_info(path, options);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->spec.layers[0].attention.heads.num_q_heads, 4);
  EXPECT_EQ(std::ranges::count(info->assumptions, std::string("stated by the caller"), &Assumption::reason),
            2);
  EXPECT_FALSE(load_model_text(path, options)->tokenizer.adds_bos());
  EXPECT_TRUE(load_model_text(path)->tokenizer.adds_bos());

  const auto refused = [&](StatedKey stated) {
    LoadOptions wrong = options;
    wrong.stated_keys.push_back(std::move(stated));
    return read_model_info(path, wrong).error();
  };
  EXPECT_EQ(refused({"llama.attention.head_count", 3}).kind, ErrorKind::kInvalidContent);
  EXPECT_NE(refused({"llama.attention.head_cuont", 3}).message.find("head_cuont"), std::string::npos);
  EXPECT_NE(refused({"tokenizer.ggml.odd", 3}).message.find("tokenizer.ggml.odd"), std::string::npos);
  EXPECT_EQ(refused({"gemma.block_count", 3}).kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(refused({"llama.block_count", JsonArray{}}).kind, ErrorKind::kInvalidArgument);
}

TEST_F(ModelInfoTest, StatedKeysOfAFolderReplaceMembersOfItsConfig) {
  const TestModel model = random_model(small_llama_spec(), 82);
  write_llama_hf(folder_.file("hf"), model,
                 without_member(with_member(llama_config(model.spec), "rope_theta", "odd"), "vocab_size"));
  EXPECT_FALSE(read_model_info(folder_.file("hf")));
  LoadOptions options;
  options.stated_keys = {{"rope_theta", 500.0}, {"vocab_size", 50}};
  const auto info = read_model_info(folder_.file("hf"), options);
  ASSERT_TRUE(info) << info.error().message;
  EXPECT_EQ(info->spec.layers[0].attention.rope.theta, 500);
  options.stated_keys.push_back({"rope_tetha", 1.0});
  const auto typo = read_model_info(folder_.file("hf"), options);
  ASSERT_FALSE(typo);
  EXPECT_NE(typo.error().message.find("rope_tetha"), std::string::npos) << typo.error().message;
}

TEST_F(ModelInfoTest, TokenizerLargerThanTheEmbeddingTableIsRefused) {
  set_entry(metadata_, "llama.vocab_size", std::uint32_t{261});
  const auto info = read_model_info(write(metadata_));
  ASSERT_FALSE(info);
  EXPECT_NE(info.error().message.find("llama.vocab_size"), std::string::npos) << info.error().message;
}

TEST_F(ModelInfoTest, InfoReadsNoTensorData) {
  const auto bytes_read = [] {
    std::ifstream io("/proc/self/io");
    std::string word;
    std::int64_t count = -1;
    io >> word >> count;
    return word == "rchar:" ? count : -1;
  };
  if (bytes_read() < 0) GTEST_SKIP() << "/proc/self/io is not there";
  model_.spec.layers[0].ffn.ffn_dim = model_.spec.layers[1].ffn.ffn_dim = model_.spec.layers[2].ffn.ffn_dim =
      2000;
  model_ = random_model(model_.spec, 81);
  const std::string path = write(llama_metadata(model_.spec));
  const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path));
  const std::int64_t before = bytes_read();
  const auto info = read_model_info(path);
  const std::int64_t taken = bytes_read() - before;
  ASSERT_TRUE(info) << info.error().message;
  ASSERT_GT(size, 1500000);
  EXPECT_LT(taken, 200000);
}

TEST_F(ModelInfoTest, EqualLayersAreFoldedAndOthersAreNot) {
  ModelSpec spec = small_llama_spec();
  EXPECT_EQ(layer_groups(spec).size(), 1U);
  EXPECT_EQ(layer_groups(spec)[0].end, 3);
  spec.layers[1].attention.mask = *parse_mask("causal & window(4)");
  const auto groups = layer_groups(spec);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[1].begin, 1);
  EXPECT_NE(groups[1].attention.find("window(4)"), std::string::npos) << groups[1].attention;
}

TEST_F(ModelInfoTest, MemoryTableIsTheFormulaOfTheCache) {
  const auto info = read_model_info(write(metadata_));
  ASSERT_TRUE(info) << info.error().message;
  const MemoryTable table = memory_table(*info, 1000, 16);
  EXPECT_EQ(table.cache_f32, std::int64_t{1000} * 3 * 2 * (8 + 8) * 4);
  EXPECT_EQ(table.cache_bf16 * 2, table.cache_f32);
  EXPECT_EQ(table.weights, info->packed_weight_bytes);
  EXPECT_EQ(memory_table(*info).context, model_.spec.context_length);
  // Weights and activations do not grow with the context.
  EXPECT_EQ(memory_table(*info, 100000, 16).activations, table.activations);
  EXPECT_EQ(memory_table(*info, 100000, 16).workspace, table.workspace);
}

TEST_F(ModelInfoTest, JsonHoldsTheWholeSpec) {
  const auto info = read_model_info(write(metadata_));
  ASSERT_TRUE(info) << info.error().message;
  const Json json = to_json(*info);
  const auto parsed = parse_json(json.dump(), "info");
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto spec = model_spec_from_json(*parsed->find("spec"));
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(*spec, info->spec);
  EXPECT_EQ(parsed->find("assumptions")->as_array()->size(), info->assumptions.size());
}

TEST_F(ModelInfoTest, MissingInputsAreNoInput) {
  std::filesystem::create_directories(folder_.file("empty"));
  for (const char* name : {"nothing.gguf", "empty"}) {
    const auto info = read_model_info(folder_.file(name));
    ASSERT_FALSE(info);
    EXPECT_EQ(info.error().kind, ErrorKind::kNoInput) << info.error().message;
  }
  const auto text = load_model_text(folder_.file("empty"));
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().kind, ErrorKind::kNoInput) << text.error().message;
}

TEST_F(ModelInfoTest, ConfigThatIsNoObjectIsRefused) {
  write_llama_hf(folder_.file("hf"), model_, llama_config(model_.spec));
  for (const char* text :
       {"", "[1]", "{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}", "{\"model_type\": 3}"}) {
    ASSERT_TRUE(write_file(folder_.file("hf") + "/config.json", text, true));
    const auto info = read_model_info(folder_.file("hf"));
    ASSERT_FALSE(info) << text;
    EXPECT_EQ(info.error().kind, ErrorKind::kInvalidContent) << info.error().message;
  }
}

}  // namespace
}  // namespace sightline
