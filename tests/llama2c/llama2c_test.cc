#include "llama2c.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "formats/byte_builder.h"
#include "sightline/base/file.h"
#include "sightline/base/json.h"
#include "sightline/formats/gguf.h"
#include "sightline/formats/safetensors.h"

namespace sightline::llama2c {
namespace {

using testing_formats::ByteBuilder;
using testing_formats::TemporaryFolder;

// 2 query heads and 1 key head of 4, one layer; every weight is its own number. `vocab` < 0: untied.
ByteBuilder small_checkpoint(std::int32_t vocab) {
  ByteBuilder b;
  for (const std::int32_t field : {8, 6, 1, 2, 1, vocab, 3}) b.put(field);
  const std::size_t v = static_cast<std::size_t>(std::abs(vocab));
  std::size_t count = v * 8 + 8 + 64 + 32 + 32 + 64 + 8 + 3 * 48 + 8 + 2 * 3 * 2 + (vocab < 0 ? v * 8 : 0);
  for (std::size_t i = 0; i < count; ++i) b.f32(static_cast<float>(i));
  return b;
}

ByteBuilder small_vocabulary() {
  ByteBuilder b;
  b.u32(7);
  const std::pair<const char*, float> tokens[] = {
      {"<unk>", 0}, {"\n<s>\n", 0}, {"\n</s>\n", 0}, {"<0x0A>", 0}, {" a", -0.5F},
      {"ab", -1},   {" ab", -2},    {" ", -3},       {"a", -4},     {"b", -5}};
  for (const auto& [text, score] : tokens)
    b.f32(score).u32(static_cast<std::uint32_t>(std::strlen(text))).raw(text);
  return b;
}

void save(const std::filesystem::path& path, const ByteBuilder& b) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(b.bytes().data()), static_cast<std::streamsize>(b.size()));
}

class Llama2cTest : public testing::Test {
 protected:
  void load(std::int32_t vocab) {
    save(folder_.path() / "m.bin", small_checkpoint(vocab));
    save(folder_.path() / "t.bin", small_vocabulary());
    auto model = read_checkpoint(folder_.path() / "m.bin");
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
    auto vocabulary = read_vocabulary(folder_.path() / "t.bin", 10);
    ASSERT_TRUE(vocabulary) << vocabulary.error().message;
    vocabulary_ = std::move(*vocabulary);
  }
  TemporaryFolder folder_;
  Checkpoint model_;
  Vocabulary vocabulary_;
};

std::vector<float> read_all(const TensorSource& file, std::string_view name) {
  const auto* info = file.find(name);
  if (info == nullptr) return {};
  std::vector<float> out(static_cast<std::size_t>(info->num_elements()));
  if (!file.read_f32(*info, 0, info->num_rows(), out)) out.clear();
  return out;
}

TEST_F(Llama2cTest, GgufKeepsRowsAndHfPermutesQAndKByTheirOwnHeads) {
  load(10);
  ASSERT_TRUE(write_gguf(folder_.path() / "m.gguf", model_, vocabulary_, false));
  ASSERT_TRUE(write_hf_folder(folder_.path() / "hf", model_, vocabulary_, false));
  const auto gguf = GgufFile::open(folder_.path() / "m.gguf");
  const auto hf = SafetensorsFile::open(folder_.path() / "hf");
  ASSERT_TRUE(gguf) << gguf.error().message;
  ASSERT_TRUE(hf) << hf.error().message;

  const auto q = read_all(*gguf, "blk.0.attn_q.weight");
  const auto k = read_all(*gguf, "blk.0.attn_k.weight");
  const auto hf_q = read_all(*hf, "model.layers.0.self_attn.q_proj.weight");
  const auto hf_k = read_all(*hf, "model.layers.0.self_attn.k_proj.weight");
  const std::size_t q_begin = 10 * 8 + 8;  // behind the embedding and the norm
  ASSERT_EQ(q.size(), 64U);
  ASSERT_EQ(k.size(), 32U);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(q[i], static_cast<float>(q_begin + i));
  // Halves of a head of 4: rows 0 2 1 3 of the neighbours.
  const std::size_t q_rows[] = {0, 2, 1, 3, 4, 6, 5, 7};
  const std::size_t k_rows[] = {0, 2, 1, 3};
  for (std::size_t r = 0; r < 8; ++r) EXPECT_EQ(hf_q[r * 8 + 5], q[q_rows[r] * 8 + 5]) << r;
  for (std::size_t r = 0; r < 4; ++r) EXPECT_EQ(hf_k[r * 8 + 5], k[k_rows[r] * 8 + 5]) << r;
  EXPECT_EQ(read_all(*hf, "model.layers.0.self_attn.v_proj.weight"), read_all(*gguf, "blk.0.attn_v.weight"));
  EXPECT_EQ(read_all(*hf, "model.layers.0.mlp.down_proj.weight"), read_all(*gguf, "blk.0.ffn_down.weight"));
  EXPECT_EQ(gguf->find("blk.0.ffn_down.weight")->shape, (std::vector<std::int64_t>{8, 6}));
  EXPECT_EQ(gguf->find("output.weight"), nullptr);
  EXPECT_EQ(hf->find("lm_head.weight"), nullptr);
}

TEST_F(Llama2cTest, ANegativeVocabularyMeansAHeadOfItsOwn) {
  load(-10);
  ASSERT_TRUE(write_gguf(folder_.path() / "m.gguf", model_, vocabulary_, false));
  ASSERT_TRUE(write_hf_folder(folder_.path() / "hf", model_, vocabulary_, false));
  const auto gguf = GgufFile::open(folder_.path() / "m.gguf");
  const auto hf = SafetensorsFile::open(folder_.path() / "hf");
  const auto head = read_all(*gguf, "output.weight");
  ASSERT_EQ(head.size(), 80U);
  EXPECT_EQ(head[79], static_cast<float>((small_checkpoint(-10).size() - 28) / 4 - 1));
  EXPECT_EQ(read_all(*hf, "lm_head.weight"), head);
}

TEST_F(Llama2cTest, TokenizerGoesOverWithKindsScoresAndMerges) {
  load(10);
  ASSERT_TRUE(write_gguf(folder_.path() / "m.gguf", model_, vocabulary_, false));
  const auto gguf = GgufFile::open(folder_.path() / "m.gguf");
  const auto& m = gguf->metadata();
  const auto& tokens = **m.get_strings("tokenizer.ggml.tokens");
  EXPECT_EQ(tokens[1], "<s>");
  EXPECT_EQ(tokens[6],
            "\xe2\x96\x81"
            "ab");
  EXPECT_EQ(*m.get_ints("tokenizer.ggml.token_type"),
            (std::vector<std::int64_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ((*m.get_floats("tokenizer.ggml.scores"))[6], -2.0F);

  const auto json = parse_json(tokenizer_json(vocabulary_), "t");
  ASSERT_TRUE(json);
  const auto& merges = *json->find("model")->find("merges")->as_array();
  std::vector<std::string> texts;
  for (const auto& merge : merges) texts.push_back(*merge.as_string());
  const std::string space = "\xe2\x96\x81";
  EXPECT_EQ(texts, (std::vector<std::string>{space + " a", "a b", space + "a b", space + " ab"}));
  EXPECT_EQ(*json->find("model")->find("vocab")->find("<0x0A>")->as_int(), 3);
  EXPECT_EQ(json->find("added_tokens")->as_array()->size(), 3U);
}

TEST_F(Llama2cTest, EveryTruncationAndAnExtraByteAreRefused) {
  const auto path = folder_.path() / "x.bin";
  save(path, small_checkpoint(-10).u8(0));
  EXPECT_NE(read_checkpoint(path).error().message.find("follow the last tensor"), std::string::npos);
  for (std::size_t n = small_checkpoint(-10).size(); n-- > 0;) {
    std::filesystem::resize_file(path, n);
    const auto read = read_checkpoint(path);
    ASSERT_FALSE(read) << n;
    EXPECT_EQ(read.error().kind, ErrorKind::kInvalidContent);
  }
  save(path, small_vocabulary().u8(0));
  EXPECT_NE(read_vocabulary(path, 10).error().message.find("bytes follow token 9"), std::string::npos);
  for (std::size_t n = small_vocabulary().size(); n-- > 0;) {
    std::filesystem::resize_file(path, n);
    const auto read = read_vocabulary(path, 10);
    ASSERT_FALSE(read) << n;
    EXPECT_EQ(read.error().kind, ErrorKind::kInvalidContent);
  }
}

TEST_F(Llama2cTest, HeadersOutOfRangeAreRefused) {
  const auto path = folder_.path() / "x.bin";
  for (std::size_t field = 0; field < 7; ++field) {
    for (const std::int32_t value : {0, INT32_MIN, INT32_MAX, -1}) {
      ByteBuilder b = small_checkpoint(10);
      std::memcpy(&b.bytes()[4 * field], &value, 4);
      save(path, b);
      const auto read = read_checkpoint(path);
      ASSERT_FALSE(read) << field << ' ' << value;
      EXPECT_EQ(read.error().kind, ErrorKind::kInvalidContent);
    }
  }
  for (const std::int32_t heads : {3, 8}) {  // dim 8: 3 does not divide, 8 leaves an odd head
    ByteBuilder b = small_checkpoint(10);
    std::memcpy(&b.bytes()[12], &heads, 4);
    save(path, b);
    EXPECT_NE(read_checkpoint(path).error().message.find("do not divide"), std::string::npos);
  }
}

TEST(Llama2cRealFileTest, Stories260kConvertsToBothKinds) {
  const char* data = std::getenv("SIGHTLINE_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "SIGHTLINE_TEST_DATA is not set: stories260K/stories260K.bin";
  const auto source = std::filesystem::path(data) / "stories260K";
  const auto model = read_checkpoint(source / "stories260K.bin");
  ASSERT_TRUE(model) << model.error().message;
  const auto vocabulary = read_vocabulary(source / "tok512.bin", model->vocab_size);
  ASSERT_TRUE(vocabulary) << vocabulary.error().message;
  EXPECT_TRUE(model->is_tied());
  const TemporaryFolder folder;
  ASSERT_TRUE(write_gguf(folder.path() / "s.gguf", *model, *vocabulary, false));
  ASSERT_TRUE(write_hf_folder(folder.path() / "hf", *model, *vocabulary, false));
  const auto gguf = GgufFile::open(folder.path() / "s.gguf");
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ(gguf->tensors().size(), 5U * 9 + 2);
  const auto hf = SafetensorsFile::open(folder.path() / "hf");
  ASSERT_TRUE(hf) << hf.error().message;
  EXPECT_EQ(hf->tensors().size(), 5U * 9 + 2);
  EXPECT_TRUE(read_file(folder.path() / "hf" / "tokenizer.json"));
}

}  // namespace
}  // namespace sightline::llama2c
