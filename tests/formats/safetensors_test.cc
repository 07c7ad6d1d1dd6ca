// One safetensors file: what a reader takes, and the rows of the bad-input table.
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

}  // namespace
}  // namespace sightline::testing_formats
