#include "sightline/formats/gguf_writer.h"

#include <gtest/gtest.h>

#include "byte_builder.h"
#include "sightline/base/file.h"

namespace sightline::testing_formats {
namespace {

std::vector<GgufEntry> every_type() {
  GgufStrings strings;
  for (const char* text : {"", "a", "\xff\n"}) strings.push_back(text);
  std::vector<GgufEntry> out;
  const auto set = [&](const char* key, GgufValue value) { out.push_back({key, std::move(value), 0}); };
  set("u8", std::uint8_t{200});
  set("i8", std::int8_t{-3});
  set("u16", std::uint16_t{60000});
  set("i16", std::int16_t{-300});
  set("u32", std::uint32_t{7});
  set("i32", std::int32_t{-7});
  set("f32", 0.5F);
  set("bool", true);
  set("string", std::string("text"));
  set("u64", UINT64_MAX);
  set("i64", INT64_MIN);
  set("f64", 0.25);
  set("a.u8", GgufArray(std::vector<std::uint8_t>{1, 2}));
  set("a.i8", GgufArray(std::vector<std::int8_t>{-1}));
  set("a.u16", GgufArray(std::vector<std::uint16_t>{1}));
  set("a.i16", GgufArray(std::vector<std::int16_t>{-1}));
  set("a.u32", GgufArray(std::vector<std::uint32_t>{1}));
  set("a.i32", GgufArray(std::vector<std::int32_t>{-1}));
  set("a.f32", GgufArray(std::vector<float>{1.5F}));
  set("a.bool", GgufArray(GgufBools{{1, 0}}));
  set("a.string", GgufArray(strings));
  set("a.u64", GgufArray(std::vector<std::uint64_t>{UINT64_MAX}));
  set("a.i64", GgufArray(std::vector<std::int64_t>{-1}));
  set("a.f64", GgufArray(std::vector<double>{}));
  return out;
}

TEST(GgufWriterTest, MetadataOfEveryTypeReadsBackEqual) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.gguf";
  auto writer = create_gguf(path, every_type(), {}, false);
  ASSERT_TRUE(writer) << writer.error().message;
  ASSERT_TRUE(writer->commit());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto expected = every_type();
  ASSERT_EQ(file->metadata().entries().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(file->metadata().entries()[i].key, expected[i].key);
    EXPECT_TRUE(file->metadata().entries()[i].value == expected[i].value) << expected[i].key;
  }
}

TEST(GgufWriterTest, TensorsReadBackByNameTypeAndValue) {
  const TemporaryFolder folder;
  for (const std::uint32_t alignment : {1U, 32U, 4096U}) {
    const auto path = folder.path() / fmt::format("{}.gguf", alignment);
    const std::vector<TensorDecl> decls{
        {"f32", DataType::kF32, {3}},     {"empty", DataType::kF32, {0, 4}},
        {"f16", DataType::kF16, {2, 5}},  {"bf16", DataType::kBF16, {1, 2, 3}},
        {"q8", DataType::kQ8_0, {2, 64}}, {"scalar", DataType::kF32, {}},
        {"q4", DataType::kQ4_1, {1, 32}}};
    auto writer = create_gguf(path, {{"general.alignment", alignment, 0}}, decls, false);
    ASSERT_TRUE(writer) << writer.error().message;
    for (const auto& decl : decls) {
      std::vector<float> values(static_cast<std::size_t>(*checked_num_elements(decl.shape)));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i);  // exact in every type
      if (decl.type == DataType::kQ8_0) values.back() = values.front() = 127;
      if (decl.type == DataType::kQ4_1) {
        ASSERT_TRUE(writer->append_bytes(std::vector<std::byte>(20)));
      } else {
        ASSERT_TRUE(writer->append_f32(values)) << decl.name;
      }
    }
    ASSERT_TRUE(writer->commit());
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->alignment(), alignment);
    ASSERT_EQ(file->tensors().size(), decls.size());
    for (std::size_t t = 0; t < decls.size(); ++t) {
      const auto& info = file->tensors()[t];
      EXPECT_EQ(info.name, decls[t].name);
      EXPECT_EQ(info.shape, decls[t].shape);
      EXPECT_EQ(info.file_offset % alignment, 0U);
      std::vector<float> out(static_cast<std::size_t>(info.num_elements()));
      ASSERT_TRUE(file->read_f32(info, 0, info.num_rows(), out));
      if (info.type == DataType::kF32 || info.type == DataType::kF16 || info.type == DataType::kBF16) {
        for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], static_cast<float>(i)) << info.name;
      }
    }
  }
}

TEST(GgufWriterTest, NothingAppearsBeforeCommit) {
  const TemporaryFolder folder;
  {
    auto writer = create_gguf(folder.path() / "m.gguf", {}, {{"t", DataType::kF32, {2}}}, false);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append_f32(std::vector<float>{1}));
    EXPECT_EQ(writer->commit().error().kind, ErrorKind::kInvalidArgument);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "m.gguf"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriterTest, TooManyDataAndSplitBlocksAreRefused) {
  const TemporaryFolder folder;
  auto writer = create_gguf(folder.path() / "m.gguf", {}, {{"t", DataType::kQ8_0, {32}}}, false);
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->append_f32(std::vector<float>(31)).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(writer->append_f32(std::vector<float>(64)).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(writer->append_f32(std::vector<float>(32)));
  EXPECT_EQ(writer->append_f32(std::vector<float>(32)).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_TRUE(writer->commit());
}

TEST(GgufWriterTest, WhatAReaderWouldRefuseIsNotWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.gguf";

  const auto refused = [&](const std::vector<GgufEntry>& keys, std::vector<TensorDecl> tensors) {
    const auto writer = create_gguf(path, keys, std::move(tensors), false);
    ASSERT_FALSE(writer) << keys.size() << " keys, the first " << (keys.empty() ? "" : keys[0].key);
    EXPECT_EQ(writer.error().kind, ErrorKind::kInvalidArgument) << writer.error().message;
  };
  const GgufValue one = std::uint8_t{1};
  refused({{"", one, 0}}, {});
  refused({{"caf\xc3\xa9", one, 0}}, {});
  refused({{"a", one, 0}, {"a", one, 0}}, {});
  refused({{"a", GgufArray(std::monostate()), 0}}, {});
  refused({{"general.alignment", std::uint32_t{3}, 0}}, {});
  refused({{"general.alignment", std::int32_t{32}, 0}}, {});
  refused({}, {{"", DataType::kF32, {1}}});
  refused({}, {{std::string(65, 'n'), DataType::kF32, {1}}});
  refused({}, {{"t", DataType::kF32, {1}}, {"t", DataType::kF32, {1}}});
  refused({}, {{"t", DataType::kF32, {1, 1, 1, 1, 1}}});
  refused({}, {{"t", DataType::kF32, {-1}}});
  refused({}, {{"t", DataType::kQ8_0, {32, 33}}});
  refused({}, {{"t", DataType::kBool, {1}}});
  refused({}, {{"t", DataType::kI8, {INT64_MAX}},
               {"u", DataType::kI8, {INT64_MAX}},
               {"v", DataType::kI8, {INT64_MAX}}});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriterTest, AnExistingFileIsReplacedOnlyWhenAsked) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "m.gguf";
  ASSERT_TRUE(write_file(path, "old", false));
  EXPECT_EQ(create_gguf(path, {}, {}, false).error().kind, ErrorKind::kCannotCreate);
  auto writer = create_gguf(path, {}, {}, true);
  ASSERT_TRUE(writer);
  EXPECT_EQ(*read_file(path), "old");
  ASSERT_TRUE(writer->commit());
  EXPECT_TRUE(GgufFile::open(path));
}

}  // namespace
}  // namespace sightline::testing_formats
