#include "sightline/formats/npy.h"

#include <gtest/gtest.h>
#include <zip.h>

#include <array>
#include <cstdlib>
#include <fstream>

#include "allocation_counter.h"
#include "byte_builder.h"
#include "sightline/base/file.h"

namespace sightline::testing_formats {
namespace {

std::vector<std::byte> npy(std::string_view header, std::size_t data_bytes, std::uint8_t major = 1) {
  ByteBuilder b = ByteBuilder().raw("\x93NUMPY").u8(major).u8(0);
  if (major == 1) {
    b.put(static_cast<std::uint16_t>(header.size()));
  } else {
    b.u32(static_cast<std::uint32_t>(header.size()));
  }
  return b.raw(header).zeros(data_bytes).bytes();
}

Result<NpyArray> parse(std::string_view header, std::size_t data_bytes, std::uint8_t major = 1) {
  return parse_npy(npy(header, data_bytes, major), "test.npy");
}

NpyArray sequence(DataType type, std::vector<std::int64_t> shape) {
  NpyArray array{type, std::move(shape), {}};
  array.bytes.resize(*row_bytes(type, static_cast<std::uint64_t>(*checked_num_elements(array.shape))));
  for (std::size_t i = 0; i < array.bytes.size(); ++i) {
    array.bytes[i] = static_cast<std::byte>(type == DataType::kBool ? i % 2 : i);
  }
  return array;
}

constexpr std::array kTypes{DataType::kF64, DataType::kF32, DataType::kF16, DataType::kI64,
                            DataType::kI32, DataType::kI16, DataType::kI8,  DataType::kU64,
                            DataType::kU32, DataType::kU16, DataType::kU8,  DataType::kBool};

TEST(NpyTest, EveryTypeAndRankReadsBackEqual) {
  for (const DataType type : kTypes) {
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{}, {0}, {5}, {2, 3}, {2, 1, 3, 1, 2, 1, 1, 2}}) {
      const auto array = sequence(type, shape);
      const auto text = format_npy(array);
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ((text->size() - array.bytes.size()) % 64, 0U);
      const auto back = parse_npy(std::as_bytes(std::span(*text)), "test.npy");
      ASSERT_TRUE(back) << back.error().message;
      EXPECT_EQ(*back, array);
    }
  }
}

TEST(NpyTest, TheHeaderIsWhatNumpyWrites) {
  const std::string text = *format_npy(sequence(DataType::kF32, {3}));
  EXPECT_EQ(text.substr(0, 10), std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  EXPECT_TRUE(text.substr(10).starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }  "));
  EXPECT_EQ(text[127], '\n');
}

TEST(NpyTest, FortranOrderIsTransposed) {
  // Shape (2, 3) in column-major order: columns 0 1 2 follow each other.
  auto bytes = npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", 0);
  for (const int v : {0, 3, 1, 4, 2, 5}) bytes.push_back(static_cast<std::byte>(v));
  const auto array = parse_npy(bytes, "test.npy");
  ASSERT_TRUE(array) << array.error().message;
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(array->bytes[i], static_cast<std::byte>(i));
  EXPECT_TRUE(parse("{'descr': '<f8', 'fortran_order': True, 'shape': (2, 0, 3)}", 0));
}

TEST(NpyTest, Versions1To3AndLooseHeadersAreRead) {
  for (const std::uint8_t major : {std::uint8_t{1}, std::uint8_t{2}, std::uint8_t{3}}) {
    EXPECT_TRUE(parse("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   \n", 8, major));
  }
  EXPECT_TRUE(parse(R"( {"shape":(2 , 1),"descr":"<f4","fortran_order":False})", 8));
  EXPECT_TRUE(parse("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4));
  EXPECT_TRUE(parse("{'descr': '<i1', 'fortran_order': False, 'shape': (4)}", 4));
}

TEST(NpyTest, BadHeadersAreRefused) {
  const auto refused = [](std::string_view header, std::string_view part) {
    expect_refused(parse(header, 8), part);
  };
  refused("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", "big endian");
  refused("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", "descr '|O' is not supported");
  refused("{'descr': '<V2', 'fortran_order': False, 'shape': (4,)}", "not supported");
  refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", "expected a string");
  refused("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "True or False");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "whole numbers");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2.0,)}", "expected ',' or ')'");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", "whole numbers");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", "data: 8 bytes");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", "rank over 8");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", "8 bytes are no F32 of shape [3]");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "8 bytes are no F32 of shape [1]");
  refused("{'descr': '<f4', 'fortran_order': False}", "missing");
  refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "occurs twice");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "unknown key 'x'");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "bytes follow");
  refused("{'descr': '<f\\x34', 'fortran_order': False, 'shape': (2,)}", "escapes");
  refused("[]", "expected '{'");
  refused("", "expected '{'");
}

TEST(NpyTest, BadFramesAndEveryPrefixAreRefused) {
  const std::string_view header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
  const auto whole = npy(header, 8);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect_refused(parse_npy(std::span(whole).first(n), "test.npy"), "byte");
  }
  for (const std::uint8_t major : {std::uint8_t{0}, std::uint8_t{4}, std::uint8_t{255}}) {
    expect_refused(parse(header, 8, major), "version");
  }
  for (std::size_t i = 0; i < whole.size() * 8; ++i) {
    auto bytes = whole;
    bytes[i / 8] ^= std::byte{1} << (i % 8);
    const auto array = parse_npy(bytes, "test.npy");
    if (!array) {
      EXPECT_EQ(array.error().kind, ErrorKind::kInvalidContent) << i;
    }
  }
  auto bools = npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 2);
  bools.back() = std::byte{2};
  expect_refused(parse_npy(bools, "test.npy"), "bool must be 0 or 1");
}

TEST(NpyTest, ValuesConvertExactlyWhereTheTypeAllows) {
  for (const DataType type : kTypes) {
    const auto array = sequence(type, {4});
    const auto as_double = to_f64(array);
    const auto as_float = to_f32(array);
    ASSERT_TRUE(as_double) << to_string(type);
    ASSERT_TRUE(as_float) << to_string(type);
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ((*as_float)[i], static_cast<float>((*as_double)[i])) << to_string(type);
  }
  EXPECT_EQ((*to_f64(sequence(DataType::kI64, {2})))[0], static_cast<double>(0x0706050403020100));
  EXPECT_EQ((*to_f64(sequence(DataType::kU8, {3})))[2], 2.0);
  EXPECT_FALSE(npy_array(std::vector<float>{1, 2}, {3}));
  EXPECT_EQ((*to_f32(*npy_array(std::vector<double>{1, 2}, {2})))[1], 2.0F);
}

// Members as given, which the writer would refuse to make.
void make_zip(const std::filesystem::path& path,
              const std::vector<std::pair<std::string, std::string>>& members,
              zip_int32_t method = ZIP_CM_DEFLATE, const char* password = nullptr) {
  int code = 0;
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
  ASSERT_NE(archive, nullptr);
  for (const auto& [name, bytes] : members) {
    zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
    const zip_int64_t index = zip_file_add(archive, name.c_str(), source, 0);
    ASSERT_GE(index, 0) << zip_strerror(archive);
    zip_set_file_compression(archive, static_cast<std::uint64_t>(index), method, 0);
    if (password != nullptr) {
      zip_file_set_encryption(archive, static_cast<std::uint64_t>(index), ZIP_EM_AES_256, password);
    }
  }
  ASSERT_EQ(zip_close(archive), 0);
}

class NpzTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path path() const { return folder_.path() / "test.npz"; }
  TemporaryFolder folder_;
};

TEST_F(NpzTest, ArraysReadBackInOrderAndTwoWritesAreEqual) {
  NpzArrays arrays;
  for (const DataType type : kTypes) arrays.emplace_back(to_string(type), sequence(type, {3, 2}));
  ASSERT_TRUE(write_npz(path(), arrays, false));
  const auto back = read_npz(path());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, arrays);
  const auto first = read_file(path());
  EXPECT_EQ(write_npz(path(), arrays, false).error().kind, ErrorKind::kCannotCreate);
  ASSERT_TRUE(write_npz(path(), arrays, true));
  EXPECT_EQ(*read_file(path()), *first);
}

TEST_F(NpzTest, DeflatedMembersAreRead) {
  make_zip(path(), {{"a.npy", *format_npy(sequence(DataType::kF32, {100}))}});
  const auto back = read_npz(path());
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ((*back)[0].first, "a");
  EXPECT_EQ((*back)[0].second, sequence(DataType::kF32, {100}));
}

TEST_F(NpzTest, NamesWithAPathAndOtherMembersAreRefused) {
  const std::string array = *format_npy(sequence(DataType::kU8, {1}));
  for (const char* name : {"../a.npy", "/a.npy", "d/a.npy", "d\\a.npy", ".npy", "..npy", "a.txt", "a"}) {
    make_zip(path(), {{name, array}});
    expect_refused(read_npz(path()), "expected a plain name");
  }
  make_zip(path(), {{"a.npy", "not an array"}});
  expect_refused(read_npz(path()), "magic");
}

TEST_F(NpzTest, ArchivesThatUnpackToMoreThanAllowedAreRefusedInBoundedMemory) {
  const std::string zeros = *format_npy({DataType::kU8, {24 << 20}, std::vector<std::byte>(24 << 20)});
  make_zip(path(), {{"a.npy", zeros}});
  const auto packed = std::filesystem::file_size(path());
  EXPECT_LT(packed, 200000U);
  EXPECT_TRUE(read_npz(path()));
  reset_peak();
  expect_refused(read_npz(path(), 1 << 20), "unpacks to more than the 1048576 bytes allowed");
  EXPECT_LT(peak_bytes(), std::size_t{5} << 20);
  // Many members of one small archive: over 64 MiB the ratio decides.
  make_zip(path(), {{"a.npy", zeros}, {"b.npy", zeros}, {"c.npy", zeros}});
  expect_refused(read_npz(path()), "member 'c.npy': unpacks to more");
}

TEST_F(NpzTest, EncryptedMembersAreRefused) {
  make_zip(path(), {{"a.npy", *format_npy(sequence(DataType::kU8, {1}))}}, ZIP_CM_STORE, "secret");
  const auto back = read_npz(path());
  ASSERT_FALSE(back);
  EXPECT_EQ(back.error().kind, ErrorKind::kInvalidContent) << back.error().message;
}

TEST_F(NpzTest, DamagedArchivesAreRefused) {
  NpzArrays arrays{{"a", sequence(DataType::kF32, {20})}, {"b", sequence(DataType::kI64, {3})}};
  ASSERT_TRUE(write_npz(path(), arrays, false));
  const std::string whole = *read_file(path());
  const auto cut = folder_.path() / "test-cut.npz";
  ASSERT_TRUE(write_file(cut, whole, true));
  for (std::size_t n = whole.size(); n-- > 0;) {
    std::filesystem::resize_file(cut, n);
    const auto back = read_npz(cut);
    ASSERT_FALSE(back) << n;
    EXPECT_EQ(back.error().kind, ErrorKind::kInvalidContent) << back.error().message;
  }
  // A flipped bit of stored data is caught by the checksum.
  std::string flipped = whole;
  flipped[whole.find("descr") + 130] = static_cast<char>(flipped[whole.find("descr") + 130] ^ 1);
  ASSERT_TRUE(write_file(cut, flipped, true));
  EXPECT_EQ(read_npz(cut).error().kind, ErrorKind::kInvalidContent);
}

TEST_F(NpzTest, WritersRefuseRepeatedAndPathNames) {
  const auto array = sequence(DataType::kU8, {1});
  for (const NpzArrays& arrays :
       {NpzArrays{}, NpzArrays{{"a", array}, {"a", array}}, NpzArrays{{"a/b", array}}, NpzArrays{{"", array}},
        NpzArrays{{"a", {DataType::kBF16, {1}, std::vector<std::byte>(2)}}}}) {
    const auto written = write_npz(path(), arrays, false);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().kind, ErrorKind::kInvalidArgument) << written.error().message;
    EXPECT_FALSE(std::filesystem::exists(path()));
  }
}

TEST_F(NpzTest, SpecialFilesAreNoInput) {
  for (const std::filesystem::path& bad :
       {folder_.path(), std::filesystem::path("/dev/zero"), folder_.path() / "missing"}) {
    EXPECT_EQ(read_npz(bad).error().kind, ErrorKind::kNoInput);
    EXPECT_EQ(read_npy(bad).error().kind, ErrorKind::kNoInput);
  }
}

}  // namespace
}  // namespace sightline::testing_formats
