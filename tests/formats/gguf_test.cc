#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "sightline/formats/gguf.h"

namespace sightline {
namespace {

TEST(GgufRealFileTest, VocabularyOnlyFilesOpen) {
  const char* folder = std::getenv("SIGHTLINE_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "SIGHTLINE_TEST_DATA is not set: vocab/*.gguf";
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(folder) / "vocab")) {
    if (entry.path().extension() != ".gguf") continue;
    ++num_files;
    const auto file = GgufFile::open(entry.path());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->tensors().empty());
    const auto tokens = file->metadata().get_strings("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_GT((*tokens)->size(), 30000U);
  }
  EXPECT_EQ(num_files, 5);
}

TEST(GgufRealFileTest, SmolLm2ListsItsTensorsByType) {
  const char* path = std::getenv("SIGHTLINE_SMOLLM2");
  if (path == nullptr) GTEST_SKIP() << "SIGHTLINE_SMOLLM2 is not set: SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  int num_q4_1 = 0;
  int num_q8_0 = 0;
  int num_f32 = 0;
  for (const auto& info : file->tensors()) {
    num_q4_1 += info.type == DataType::kQ4_1;
    num_q8_0 += info.type == DataType::kQ8_0;
    num_f32 += info.type == DataType::kF32;
  }
  EXPECT_EQ(num_q4_1, 210);
  EXPECT_EQ(num_q8_0, 1);
  EXPECT_EQ(num_f32, 61);
  const auto* table = file->find("token_embd.weight");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->shape, (std::vector<std::int64_t>{49152, 576}));
  std::vector<float> row(576);
  ASSERT_TRUE(file->read_f32(*table, 1, 2, row));
}

}  // namespace
}  // namespace sightline
