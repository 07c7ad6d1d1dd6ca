// safetensors rows of the bad-input table, the folder rules, and the writer.
#include "sightline/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "allocation_counter.h"
#include "byte_builder.h"
#include "sightline/base/file.h"

namespace sightline::testing_formats {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::vector<std::byte> with_header(std::string_view header, std::size_t data_bytes) {
  return ByteBuilder().u64(header.size()).raw(header).zeros(data_bytes).bytes();
}

Result<SafetensorsFile> open_bytes_of(const std::vector<std::byte>& bytes) {
  return SafetensorsFile::open(memory_bytes("test.safetensors", bytes));
}

Result<SafetensorsFile> open_header(std::string_view header, std::size_t data_bytes) {
  return open_bytes_of(with_header(header, data_bytes));
}

constexpr std::string_view kSample =
    R"({"__metadata__":{"format":"pt","k":"v"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("empty":{"dtype":"I64","shape":[0,5],"data_offsets":[16,16]},"s":{"dtype":"U8","shape":[],"data_offsets":[16,17]}})";

TEST(SafetensorsTest, ASoundFileIsListed) {
  const auto file = open_header(kSample, 17);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->find("b")->file_offset, 8 + kSample.size());
  EXPECT_EQ(file->find("s")->num_elements(), 1);
  EXPECT_EQ(file->find("empty")->num_elements(), 0);
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{"format", "pt"}, {"k", "v"}}));
}

TEST(SafetensorsTest, Row35HeaderLengthsThatDoNotFitAreRefused) {
  const auto whole = with_header(kSample, 17);
  for (std::size_t n = 0; n < 8; ++n) {
    expect_refused(open_bytes_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}),
                   "byte 0: header length");
  }
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX,
                                     std::uint64_t{100'000'001}, std::uint64_t{whole.size() - 7}}) {
    auto bytes = whole;
    std::memcpy(bytes.data(), &length, 8);
    reset_peak();
    expect_refused(open_bytes_of(bytes), "byte");
    EXPECT_LT(peak_bytes(), kMiB);
  }
}

TEST(SafetensorsTest, Row36HeadersAreUtf8WithNothingButWhiteSpaceAround) {
  const std::string header(kSample);
  expect_refused(open_header("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
                 "malformed");
  expect_refused(open_header("\xef\xbb\xbf" + header, 17), "byte order mark");
  expect_refused(open_header(header + "x", 17), "malformed");
  expect_refused(open_header(header + "{}", 17), "malformed");
  expect_refused(open_header(header + std::string(1, '\0'), 17), "malformed");
  EXPECT_TRUE(open_header("  \n\t" + header + "   \r\n", 17));
}

TEST(SafetensorsTest, Row37TheHeaderIsOneObject) {
  for (const char* header : {"[]", "null", "1", "\"x\"", "true"}) {
    expect_refused(open_header(header, 0), "header: expected an object");
  }
  expect_refused(open_header("{}", 1), "1 bytes follow the last tensor");
  const auto empty = open_header("{}", 0);
  ASSERT_TRUE(empty) << empty.error().message;
  EXPECT_TRUE(empty->tensors().empty());
}

TEST(SafetensorsTest, Row38RepeatedNamesAndKeysAreRefused) {
  expect_refused(open_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                             8),
                 "tensor name 'a' occurs twice");
  expect_refused(open_header(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "key 'k' occurs twice");
  expect_refused(open_header(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ occurs twice");
  for (const char* twice : {R"("dtype":"U8","dtype":"U8")", R"("dtype":"U8","shape":[1],"shape":[1])",
                            R"("dtype":"U8","data_offsets":[0,1],"data_offsets":[0,1])"}) {
    expect_refused(open_header(fmt::format(R"({{"a":{{{}}}}})", twice), 1), "occurs twice");
  }
}

TEST(SafetensorsTest, Row39OffsetsAreTwoWholeNumbersInOrder) {
  for (const char* offsets : {"[1,0]", "[-1,0]", "[0.0,1.0]", "[\"0\",\"1\"]", "[1]", "[0,1,1]", "[]", "0",
                              "null", "[0,1e0]", "[0,[1]]", "[0,18446744073709551616]", "[true,1]"}) {
    expect_refused(
        open_header(fmt::format(R"({{"a":{{"dtype":"U8","shape":[1],"data_offsets":{}}}}})", offsets), 1),
        "tensor 'a'");
  }
}

TEST(SafetensorsTest, Row40HolesOverlapsAndTailsAreRefused) {
  const auto two = [](std::string_view first, std::string_view second, std::size_t data_bytes) {
    return open_header(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                   R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                                   first, second),
                       data_bytes);
  };
  EXPECT_TRUE(two("[0,4]", "[4,8]", 8));
  EXPECT_TRUE(two("[4,8]", "[0,4]", 8));
  expect_refused(two("[0,4]", "[5,9]", 9), "hole");
  expect_refused(two("[0,4]", "[3,7]", 7), "overlap");
  expect_refused(two("[0,4]", "[0,4]", 4), "overlap");
  expect_refused(two("[4,8]", "[8,12]", 12), "hole");
  expect_refused(two("[0,4]", "[4,8]", 9), "follow the last tensor");
  expect_refused(two("[0,4]", "[4,8]", 7), "7 in the file");
}

TEST(SafetensorsTest, Row41ShapesAreWholeNumbersWithACheckedProduct) {
  for (const char* shape :
       {"[-1]", "[1.0]", "[1e3]", "[\"4\"]", "[9223372036854775808]", "[4294967296,4294967296]",
        "[4294967296,4294967296,0]", "4", "null", "[[1]]", "[1,1,1,1,1,1,1,1,1]"}) {
    expect_refused(
        open_header(fmt::format(R"({{"a":{{"dtype":"U8","shape":{},"data_offsets":[0,1]}}}})", shape), 1),
        "tensor 'a'");
  }
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  expect_refused(
      open_header(fmt::format(R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[0,1]}}}})", ones), 1),
      "more than 8 numbers");
  expect_refused(open_header(R"({"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4]}})", 4),
                 "4 bytes, but shape [1000000] of F32 has 4000000");
}

TEST(SafetensorsTest, Row42TypesAreThoseOfTheFormat) {
  for (const char* dtype : {"\"f32\"", "\"F33\"", "\"Q8_0\"", "\"\"", "1", "null", "[\"F32\"]"}) {
    expect_refused(
        open_header(fmt::format(R"({{"a":{{"dtype":{},"shape":[1],"data_offsets":[0,4]}}}})", dtype), 4),
        "tensor 'a': dtype");
  }
  expect_refused(open_header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2),
                 "does not end on a byte");
  EXPECT_TRUE(open_header(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", 3));
}

TEST(SafetensorsTest, Row42TypesWithoutDecoderAreListedAndRefusedWhenRead) {
  const auto file = open_header(R"({"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},)"
                                R"("b":{"dtype":"F4","shape":[2,3],"data_offsets":[4,7]}})",
                                7);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<float> out(4);
  expect_refused(file->read_f32(*file->find("a"), 0, 1, out), "type F8_E4M3 cannot be read");
  expect_refused(file->read_f32(*file->find("b"), 0, 1, std::span(out).first(3)), "do not start on a byte");
}

TEST(SafetensorsTest, Row43MetadataIsAMapOfStrings) {
  for (const char* value : {"1", "null", "{}", "[\"x\"]", "true"}) {
    expect_refused(open_header(fmt::format(R"({{"__metadata__":{{"k":{}}}}})", value), 0),
                   "value of 'k' is no string");
  }
  for (const char* value : {"[]", "null", "\"x\""}) {
    expect_refused(open_header(fmt::format(R"({{"__metadata__":{}}})", value), 0),
                   "__metadata__: expected an object");
  }
  const std::string large(50 * kMiB, 'x');
  const auto file = open_header(fmt::format(R"({{"__metadata__":{{"k":"{}"}}}})", large), 0);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata()[0].second.size(), large.size());
}

TEST(SafetensorsTest, Row44ManyEntriesOnOneRangeEndInLittleMemory) {
  std::string header = "{";
  for (int i = 0; i < 1000000; ++i) {
    fmt::format_to(std::back_inserter(header),
                   R"({}"{}":{{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})", i == 0 ? "" : ",", i);
  }
  header += "}";
  const auto source = memory_bytes("test.safetensors", with_header(header, 16));
  reset_peak();
  expect_refused(SafetensorsFile::open(source), "more than 262144 tensors");
  EXPECT_LT(peak_bytes(), 4 * header.size());
}

TEST(SafetensorsTest, UnknownFieldsAndMissingFieldsAreRefused) {
  expect_refused(open_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1),
                 "unknown field 'x'");
  expect_refused(open_header(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "is missing");
  expect_refused(open_header(R"({"a":[]})", 1), "tensor 'a': expected an object");
  expect_refused(open_header(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "no name");
}

TEST(SafetensorsTest, EveryPrefixAndEveryFlippedBitIsRefusedOrOpensCleanly) {
  const auto whole = with_header(kSample, 17);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect_refused(open_bytes_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}), "test");
  }
  for (std::size_t i = 0; i < (8 + kSample.size()) * 8; ++i) {
    auto bytes = whole;
    bytes[i / 8] ^= std::byte{1} << (i % 8);
    reset_peak();
    const auto file = open_bytes_of(bytes);
    EXPECT_LT(peak_bytes(), kMiB);
    if (!file) {
      EXPECT_EQ(file.error().kind, ErrorKind::kInvalidContent) << i;
      continue;
    }
    for (const auto& info : file->tensors()) {
      std::vector<std::byte> out(info.num_bytes);
      EXPECT_TRUE(file->read_into(info, out)) << i;
    }
  }
}

TEST(SafetensorsTest, Row112ARefusedAllocationIsThrownAndLeavesNothingBehind) {
  const auto bytes = memory_bytes("test.safetensors", with_header(kSample, 17));
  const std::uint64_t before = num_allocations();
  ASSERT_TRUE(SafetensorsFile::open(bytes));
  const std::uint64_t count = num_allocations() - before;
  for (std::uint64_t n = 1; n <= count; ++n) {
    const std::size_t live = live_bytes();
    fail_allocation(n);
    EXPECT_THROW(static_cast<void>(SafetensorsFile::open(bytes)), std::bad_alloc) << n;
    fail_allocation(0);
    EXPECT_EQ(live_bytes(), live) << n;
  }
}

class SafetensorsFolderTest : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view text) const {
    ASSERT_TRUE(write_file(folder_.path() / name, text, true));
  }
  void put_shard(const std::string& name, const std::string& tensor, float value) const {
    auto writer = create_safetensors(folder_.path() / name, {{tensor, DataType::kF32, {1}}}, {}, true);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->append_f32(std::vector<float>{value}));
    ASSERT_TRUE(writer->commit());
  }
  void put_index(std::string_view weight_map) const {
    put("model.safetensors.index.json", fmt::format(R"({{"metadata":{{}},"weight_map":{}}})", weight_map));
  }
  [[nodiscard]] Result<SafetensorsFile> open() const { return SafetensorsFile::open(folder_.path()); }
  TemporaryFolder folder_;
};

TEST_F(SafetensorsFolderTest, ShardsAreReadThroughTheIndex) {
  put_shard("m1.safetensors", "a", 1);
  put_shard("m2.safetensors", "b", 2);
  put_index(R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  const auto file = open();
  ASSERT_TRUE(file) << file.error().message;
  std::vector<float> out(1);
  ASSERT_TRUE(file->read_f32(*file->find("b"), 0, 1, out));
  EXPECT_EQ(out[0], 2.0F);
}

TEST_F(SafetensorsFolderTest, ASingleFileComesBeforeAnIndex) {
  put_shard("model.safetensors", "single", 1);
  put_index(R"({"a":"absent.safetensors"})");
  ASSERT_TRUE(open());
  EXPECT_NE(open()->find("single"), nullptr);
}

TEST_F(SafetensorsFolderTest, AnEmptyFolderIsNoInput) {
  const auto file = open();
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().kind, ErrorKind::kNoInput);
}

TEST_F(SafetensorsFolderTest, Row38TheSameNameInTwoShardsIsRefused) {
  put_shard("m1.safetensors", "a", 1);
  put_shard("m2.safetensors", "a", 2);
  put_index(R"({"a":"m1.safetensors","b":"m2.safetensors"})");
  expect_refused(open(), "'a' occurs twice", "formats");
}

TEST_F(SafetensorsFolderTest, Row45ShardsLieInTheFolder) {
  put_shard("m1.safetensors", "a", 1);
  const TemporaryFolder other;
  std::filesystem::copy(folder_.path() / "m1.safetensors", other.path() / "out.safetensors");
  std::filesystem::create_symlink(other.path() / "out.safetensors", folder_.path() / "link.safetensors");
  std::filesystem::create_symlink("loop.safetensors", folder_.path() / "loop.safetensors");
  std::filesystem::create_symlink("m1.safetensors", folder_.path() / "inside.safetensors");
  const std::string outside = "../" + other.path().filename().string() + "/out.safetensors";
  for (const std::string& name :
       {outside, (other.path() / "out.safetensors").string(), std::string("/etc/passwd"),
        std::string("link.safetensors"), std::string("loop.safetensors"), std::string("absent.safetensors"),
        std::string(""), std::string("."), std::string(".."), std::string("./m1.safetensors"),
        std::string("a\\\\b")}) {
    put_index(fmt::format(R"({{"a":"{}"}})", name));
    expect_refused(open(), "weight_map: shard", "index.json");
  }
  put_index(R"({"a":"m1.safetensors\u0000"})");
  expect_refused(open(), "weight_map: shard", "index.json");
  put_index(R"({"a":"inside.safetensors"})");
  EXPECT_TRUE(open());
}

TEST_F(SafetensorsFolderTest, TheIndexAndTheShardsAgree) {
  put_shard("m1.safetensors", "a", 1);
  put_shard("m2.safetensors", "b", 1);
  for (const char* map :
       {R"({"a":"m1.safetensors","c":"m1.safetensors"})", R"({"a":"m2.safetensors","b":"m1.safetensors"})"}) {
    put_index(map);
    expect_refused(open(), "is not in shard", "index.json");
  }
  for (const char* map : {"[]", "null", "{}", R"({"a":1})"}) {
    put_index(map);
    expect_refused(open(), "weight_map", "index.json");
  }
  put("model.safetensors.index.json", "{");
  expect_refused(open(), "malformed", "index.json");
  put("model.safetensors.index.json", "[]");
  expect_refused(open(), "weight_map", "index.json");
}

TEST_F(SafetensorsFolderTest, ATensorThatTheIndexLeavesOutIsAWarning) {
  auto writer = create_safetensors(folder_.path() / "m1.safetensors",
                                   {{"a", DataType::kF32, {1}}, {"more", DataType::kF32, {1}}}, {}, true);
  ASSERT_TRUE(writer->append_f32(std::vector<float>{1}));
  ASSERT_TRUE(writer->append_f32(std::vector<float>{1}));
  ASSERT_TRUE(writer->commit());
  put_index(R"({"a":"m1.safetensors"})");
  const auto file = open();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->warnings().size(), 1U);
}

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
