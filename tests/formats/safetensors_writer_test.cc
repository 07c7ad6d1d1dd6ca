// What the safetensors writer writes reads back; what a reader would refuse is not written.
#include <gtest/gtest.h>

#include "byte_builder.h"
#include "sightline/base/file.h"
#include "sightline/formats/safetensors.h"

namespace sightline::testing_formats {
namespace {

std::vector<TensorDecl> plain_decls() {
  std::vector<TensorDecl> decls;
  for (const auto& row : data_types()) {
    if (row.in_safetensors && row.readable)
      decls.push_back({fmt::format("t.{}\n\"", row.name), row.type, {2, 3}});
  }
  return decls;
}

TEST(SafetensorsWriterTest, EveryTypeReadsBackInTheDeclaredOrder) {
  const TemporaryFolder folder;
  const auto decls = plain_decls();
  const auto path = folder.path() / "m.safetensors";
  auto writer = create_safetensors(path, decls, {{"format", "pt"}}, false);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const auto& decl : decls) {
    std::vector<std::byte> bytes(*row_bytes(decl.type, 6), static_cast<std::byte>(1));
    ASSERT_TRUE(writer->append_bytes(bytes));
  }
  ASSERT_TRUE(writer->commit());
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), decls.size());
  EXPECT_EQ(file->tensors()[0].file_offset % 8, 0U);
  for (std::size_t i = 0; i < decls.size(); ++i) {
    EXPECT_EQ(file->tensors()[i].name, decls[i].name);
    EXPECT_EQ(file->tensors()[i].type, decls[i].type);
  }
}

TEST(SafetensorsWriterTest, AFolderIsCutAtTheShardSizeAndReadsBack) {
  for (const std::uint64_t max_bytes :
       {std::uint64_t{1}, std::uint64_t{24}, std::uint64_t{40}, std::uint64_t{1} << 30}) {
    const TemporaryFolder folder;
    std::vector<TensorDecl> decls;
    for (int i = 0; i < 5; ++i) decls.push_back({fmt::format("t{}", i), DataType::kF32, {3}});
    auto writer = create_safetensors_folder(folder.path(), decls, {}, max_bytes, false);
    ASSERT_TRUE(writer) << writer.error().message;
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(writer->append_f32(std::vector<float>(3, static_cast<float>(i))));
    EXPECT_FALSE(SafetensorsFile::open(folder.path()));
    ASSERT_TRUE(writer->commit());
    const auto file = SafetensorsFile::open(folder.path());
    ASSERT_TRUE(file) << file.error().message;
    std::uint32_t num_files = 0;
    for (int i = 0; i < 5; ++i) {
      const auto* info = file->find(fmt::format("t{}", i));
      ASSERT_NE(info, nullptr);
      num_files = std::max(num_files, info->file_idx + 1);
      std::vector<float> out(3);
      ASSERT_TRUE(file->read_f32(*info, 0, 1, out));
      EXPECT_EQ(out, std::vector<float>(3, static_cast<float>(i)));
    }
    EXPECT_EQ(num_files, max_bytes == 1 ? 5U : max_bytes == 24 ? 3U : max_bytes == 40 ? 2U : 1U);
  }
}

TEST(SafetensorsWriterTest, WhatAReaderWouldRefuseIsNotWritten) {
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<TensorDecl> decls, const SafetensorsMetadata& metadata) {
    const auto writer =
        create_safetensors(folder.path() / "m.safetensors", std::move(decls), metadata, false);
    ASSERT_FALSE(writer);
    EXPECT_EQ(writer.error().kind, ErrorKind::kInvalidArgument);
  };
  refused({{"__metadata__", DataType::kF32, {1}}}, {});
  refused({{"a", DataType::kQ8_0, {32}}}, {});
  refused({{"a", DataType::kF32, {1}}, {"a", DataType::kF32, {1}}}, {});
  refused({{"\xff", DataType::kF32, {1}}}, {});
  refused({{"a", DataType::kF32, {-1}}}, {});
  refused({}, {{"k", "1"}, {"k", "2"}});
  refused({}, {{"k", "\xff"}});
}

}  // namespace
}  // namespace sightline::testing_formats
