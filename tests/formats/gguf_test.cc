#include "sightline/formats/gguf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "byte_builder.h"
#include "sightline/formats/gguf_writer.h"

namespace sightline::testing_formats {
namespace {

// Counts the bytes that opening a file reads.
class CountingBytes : public ByteSource {
 public:
  explicit CountingBytes(BytesPtr inner) : inner_(std::move(inner)) {}
  const std::string& name() const override { return inner_->name(); }
  std::uint64_t size() const override { return inner_->size(); }
  Result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    num_read += out.size();
    return inner_->read_at(offset, out);
  }
  mutable std::uint64_t num_read = 0;

 private:
  BytesPtr inner_;
};

ByteBuilder keys_of_every_type() {
  ByteBuilder b = gguf_start(0, 9);
  b.str("u32").u32(4).u32(7);
  b.str("i32").u32(5).put(std::int32_t{-7});
  b.str("u64").u32(10).u64(UINT64_MAX);
  b.str("f32").u32(6).f32(0.5F);
  b.str("bool").u32(7).u8(1);
  b.str("string").u32(8).str("text");
  b.str("bytes").u32(9).u32(0).u64(3).u8(1).u8(2).u8(255);
  b.str("floats").u32(9).u32(6).u64(2).f32(1.5F).f32(-2);
  b.str("strings").u32(9).u32(8).u64(2).str("a").str("");
  return b;
}

TEST(GgufMetadataTest, GettersReturnWhatTheFileHolds) {
  const auto file = open_gguf(keys_of_every_type().bytes());
  ASSERT_TRUE(file) << file.error().message;
  const auto& m = file->metadata();
  EXPECT_EQ(*m.get_int("u32"), 7);
  EXPECT_EQ(*m.get_int("i32"), -7);
  EXPECT_EQ(*m.get_float("f32"), 0.5);
  EXPECT_EQ(*m.get_bool("bool"), true);
  EXPECT_EQ(*m.get_string("string"), "text");
  EXPECT_EQ(*m.get_ints("bytes"), (std::vector<std::int64_t>{1, 2, 255}));
  EXPECT_EQ((*m.get_floats("floats"))[1], -2.0F);
  EXPECT_EQ((**m.get_strings("strings"))[0], "a");
  EXPECT_EQ((**m.get_strings("strings"))[1], "");
  EXPECT_EQ(*m.get_ints_per("u32", 3, 0, 9), (std::vector<std::int64_t>{7, 7, 7}));
  EXPECT_EQ(*m.get_ints_per("bytes", 3, 0, 255), (std::vector<std::int64_t>{1, 2, 255}));
  EXPECT_TRUE(m.has("bool"));
  EXPECT_FALSE(m.has("absent"));
  EXPECT_EQ(m.entries()[5].key, "string");
  EXPECT_EQ(describe(m.find("strings")->value), "[2 string]");
}

// Rows 21, 27 and 29: a value of another type, count or range is refused where it is used.
TEST(GgufMetadataTest, GettersNameFileByteKeyExpectedAndGot) {
  const auto file = open_gguf(keys_of_every_type().bytes());
  ASSERT_TRUE(file);
  const auto& m = file->metadata();
  const auto at = "byte " + std::to_string(m.find("u32")->file_offset);
  expect_refused(m.get_int("u32", 8, 9), at + ": key 'u32': expected an integer from 8 to 9, got u32 7");
  expect_refused(m.get_int("u64"), "got u64 18446744073709551615");
  expect_refused(m.get_int("i32", 0), "expected an integer of at least 0, got i32 -7");
  expect_refused(m.get_int("string"), "got string 'text'");
  expect_refused(m.get_int("bool"), "got bool true");
  expect_refused(m.get_int("absent", 1, 4), "key 'absent': missing, expected an integer from 1 to 4");
  expect_refused(m.get_float("u32"), "expected f32, got u32 7");
  expect_refused(m.get_bool("u32"), "expected bool");
  expect_refused(m.get_string("strings"), "expected string, got [2 string]");
  expect_refused(m.get_floats("bytes"), "expected an array of f32, got [3 u8]");
  expect_refused(m.get_ints("floats"), "got [2 f32]");
  expect_refused(m.get_ints("bytes", 0, 254), "got 255 at index 2");
  expect_refused(m.get_ints("u32"), "got u32 7");
  expect_refused(m.get_strings("string"), "expected an array of string");
  expect_refused(m.get_bools("bytes"), "expected an array of bool");
  expect_refused(m.get_ints_per("bytes", 4, 0, 255), "expected one number or 4 of them, got 3");
}

TEST(GgufFileTest, Version2AndVersion3ReadAlike) {
  for (const std::uint32_t version : {2U, 3U}) {
    const auto file = open_gguf(gguf_start(0, 1, version).str("a").u32(4).u32(1).bytes());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version(), version);
  }
}

TEST(GgufFileTest, ShapesAreSlowestFirst) {
  ByteBuilder b = gguf_start(1, 0).str("t").u32(2).u64(3).u64(2).u32(0).u64(0).pad(32);
  for (int i = 0; i < 6; ++i) b.f32(static_cast<float>(i));
  const auto file = open_gguf(b.bytes());
  ASSERT_TRUE(file) << file.error().message;
  const auto& info = file->tensors()[0];
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(info.num_rows(), 2);
  EXPECT_EQ(info.row_length(), 3);
  std::vector<float> row(3);
  ASSERT_TRUE(file->read_f32(info, 1, 2, row));
  EXPECT_EQ(row, (std::vector<float>{3, 4, 5}));
}

TEST(GgufFileTest, OpeningReadsNoTensorData) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "large.gguf";
  auto writer = create_gguf(path, {}, {{"t", DataType::kF32, {1024, 1024}}}, false);
  ASSERT_TRUE(writer) << writer.error().message;
  const std::vector<float> row(1024, 1.0F);
  for (int i = 0; i < 1024; ++i) ASSERT_TRUE(writer->append_f32(row));
  ASSERT_TRUE(writer->commit());
  const auto bytes = std::make_shared<CountingBytes>(*open_bytes(path));
  ASSERT_TRUE(GgufFile::open(BytesPtr(bytes)));
  EXPECT_LE(bytes->num_read, std::uint64_t{64} << 10);  // one buffer, of a file of 4 MiB
}

// Row 34. Three parts of one tensor each.
class GgufSplitTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path part(int no, int count = 3) const {
    return folder_.path() / fmt::format("m-{:05}-of-{:05}.gguf", no + 1, count);
  }
  void write_part(int no, int said_no, int said_count, int said_tensors, const std::string& tensor) const {
    const std::vector<GgufEntry> keys{{"split.no", static_cast<std::uint16_t>(said_no), 0},
                                      {"split.count", static_cast<std::uint16_t>(said_count), 0},
                                      {"split.tensors.count", static_cast<std::int32_t>(said_tensors), 0}};
    auto writer = create_gguf(part(no), keys, {{tensor, DataType::kF32, {2}}}, true);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->append_f32(std::vector<float>{static_cast<float>(no), 1.0F}));
    ASSERT_TRUE(writer->commit());
  }
  void SetUp() override {
    for (int i = 0; i < 3; ++i) write_part(i, i, 3, 3, fmt::format("t{}", i));
  }
  TemporaryFolder folder_;
};

TEST_F(GgufSplitTest, TheFirstPartOpensTheSet) {
  const auto file = GgufFile::open(part(0));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 3U);
  std::vector<float> out(2);
  ASSERT_TRUE(file->read_f32(*file->find("t2"), 0, 1, out));
  EXPECT_EQ(out[0], 2.0F);
}

TEST_F(GgufSplitTest, AnotherPartIsRefusedAsTheStart) {
  expect_refused(GgufFile::open(part(1)), "open the first part", "m-00002");
}

TEST_F(GgufSplitTest, AMissingARepeatedAndADisagreeingPartAreRefused) {
  std::filesystem::remove(part(2));
  expect_refused(GgufFile::open(part(0)), "part 3 of 3", "m-00001");
  std::filesystem::copy(part(1), part(2));
  expect_refused(GgufFile::open(part(0)), "key 'split.no': expected 2 in this part, got 1", "m-00003");
  write_part(2, 2, 4, 3, "t2");
  expect_refused(GgufFile::open(part(0)), "key 'split.count'", "m-00003");
  write_part(2, 2, 3, 4, "t2");
  expect_refused(GgufFile::open(part(0)), "key 'split.tensors.count'", "m-00003");
  write_part(2, 2, 3, 3, "t1");
  expect_refused(GgufFile::open(part(0)), "'t1' occurs twice", "m-00001");
}

TEST_F(GgufSplitTest, ARenamedSetIsRefused) {
  std::filesystem::rename(part(0), folder_.path() / "other.gguf");
  expect_refused(GgufFile::open(folder_.path() / "other.gguf"), "must end in '-00001-of-00003.gguf'",
                 "other.gguf");
}

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
    EXPECT_TRUE(file->warnings().empty());
    const auto tokens = file->metadata().get_strings("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_GT((*tokens)->size(), 30000U);
  }
  EXPECT_EQ(num_files, 5);
}

TEST(GgufRealFileTest, SmolLm2ListsItsTensorsByType) {
  const char* path = std::getenv("SIGHTLINE_SMOLLM2");
  if (path == nullptr) GTEST_SKIP() << "SIGHTLINE_SMOLLM2 is not set: SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto file = GgufFile::open(std::filesystem::path(path));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->warnings().empty());
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

TEST(GgufMetadataTest, AKeyThatIsSetReplacesOrJoinsTheOthers) {
  auto metadata = GgufMetadata::create("f", {{"b", std::int32_t{1}, 10}, {"d", std::string("x"), 20}});
  ASSERT_TRUE(metadata);
  metadata->set("b", std::int64_t{7});
  metadata->set("c", true);
  metadata->set("a", 0.5);
  EXPECT_EQ(metadata->get_int("b").value(), 7);
  EXPECT_EQ(metadata->get_bool("c").value(), true);
  EXPECT_EQ(metadata->get_float("a").value(), 0.5);
  EXPECT_EQ(metadata->get_string("d").value(), "x");
  EXPECT_EQ(metadata->entries().size(), 4U);
  EXPECT_EQ(metadata->get_string("c").error().message, "f: key 'c': expected string, got bool true");
  EXPECT_EQ(metadata->get_bool("d").error().message, "f: byte 20: key 'd': expected bool, got string 'x'");
}

}  // namespace
}  // namespace sightline::testing_formats
