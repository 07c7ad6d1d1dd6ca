// GGUF rows of the bad-input table: hand-made files with one defect each.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "allocation_counter.h"
#include "byte_builder.h"
#include "sightline/formats/gguf.h"

namespace sightline::testing_formats {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Two tensors of 4 and 3 floats, keys of every type; about 600 bytes.
ByteBuilder sample(std::uint32_t version = 3) {
  ByteBuilder b = gguf_start(2, 14, version);
  b.str("general.architecture").u32(8).str("test");
  b.str("a.u8").u32(0).u8(200);
  b.str("a.i8").u32(1).put(std::int8_t{-3});
  b.str("a.u16").u32(2).put(std::uint16_t{60000});
  b.str("a.i16").u32(3).put(std::int16_t{-300});
  b.str("a.u32").u32(4).u32(7);
  b.str("a.i32").u32(5).put(std::int32_t{-7});
  b.str("a.f32").u32(6).f32(0.5F);
  b.str("a.bool").u32(7).u8(1);
  b.str("a.strings").u32(9).u32(8).u64(3).str("").str("xy").str("z");
  b.str("a.floats").u32(9).u32(6).u64(2).f32(1).f32(2);
  b.str("a.u64").u32(10).u64(std::uint64_t{1} << 40);
  b.str("a.i64").u32(11).put(std::int64_t{-5});
  b.str("a.f64").u32(12).put(0.25);
  b.append(table_row("first", {2, 2}, 0, 0)).append(table_row("second", {3}, 0, 32)).pad(32);
  for (int i = 0; i < 4; ++i) b.f32(static_cast<float>(i));
  b.pad(32);
  for (int i = 0; i < 3; ++i) b.f32(10.0F + static_cast<float>(i));
  return b;
}

TEST(GgufBadInputTest, Row1FilesOfFewerBytesThanAHeaderAreRefused) {
  const auto whole = sample().bytes();
  for (std::size_t n = 0; n < 24; ++n) {
    expect_refused(open_gguf({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}), "byte");
  }
}

TEST(GgufBadInputTest, Row2OtherMagicIsContentAndSpecialFilesAreNoInput) {
  for (const char* magic : {"GGML", "FUGG", "This is a text file"}) {
    expect_refused(open_gguf(ByteBuilder().raw(magic).zeros(64).bytes()), "byte 0: magic");
  }
  const TemporaryFolder folder;
  const auto fifo = folder.path() / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const auto& path :
       {folder.path(), fifo, std::filesystem::path("/dev/zero"), folder.path() / "missing"}) {
    const auto file = GgufFile::open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_EQ(file.error().kind, ErrorKind::kNoInput) << path;
  }
}

TEST(GgufBadInputTest, Row3OtherVersionsAndByteOrdersAreRefused) {
  for (const std::uint32_t version : {0U, 1U, 4U, 0xffffffffU}) {
    expect_refused(open_gguf(gguf_start(0, 0, version).bytes()), "byte 4: version: expected 2 or 3");
  }
  for (const std::uint32_t version : {0x01000000U, 0x02000000U, 0x03000000U}) {
    expect_refused(open_gguf(gguf_start(0, 0, version).bytes()), "big-endian");
  }
}

TEST(GgufBadInputTest, Rows4And5CountsThatDoNotFitAreRefusedInLittleMemory) {
  for (const std::uint64_t n :
       {UINT64_MAX, std::uint64_t{1} << 63, std::uint64_t{1} << 32, std::uint64_t{65537}}) {
    for (const bool is_keys : {true, false}) {
      const auto bytes = gguf_start(is_keys ? 0 : n, is_keys ? n : 0).zeros(8).bytes();
      reset_peak();
      expect_refused(open_gguf(bytes), is_keys ? "key count" : "tensor count");
      expect_refused(open_gguf(bytes), "bytes left in the file");
      EXPECT_LT(peak_bytes(), kMiB);
    }
  }
  // Counts that fit the file but pass the limits.
  expect_refused(open_gguf(gguf_start(0, 65537).zeros(65537 * 13).bytes()), "over the limit of 65536");
  expect_refused(open_gguf(gguf_start(kMaxTensors + 1, 0).zeros((kMaxTensors + 1) * 24).bytes()),
                 "over the limit");
}

TEST(GgufBadInputTest, Row6KeyNamesAreOneTo65535PrintableAsciiBytes) {
  const ByteBuilder value = ByteBuilder().u8(1);
  expect_refused(open_gguf(one_key("", 0, value).bytes()), "byte 24: key name");
  expect_refused(open_gguf(one_key(std::string(65536, 'k'), 0, value).bytes()), "over the limit of 65535");
  EXPECT_TRUE(open_gguf(one_key(std::string(65535, 'k'), 0, value).bytes()));
  expect_refused(open_gguf(one_key("caf\xc3\xa9", 0, value).bytes()), "\\xc3\\xa9");
  expect_refused(open_gguf(one_key("a\nb", 0, value).bytes()), "a\\x0ab");
  expect_refused(open_gguf(gguf_start(0, 1).u64(UINT64_MAX).zeros(32).bytes()), "byte 24: key name: length");
}

TEST(GgufBadInputTest, Row7StringsLongerThanTheFileOrTheLimitAreRefused) {
  for (const std::uint64_t extra :
       {std::uint64_t{1}, UINT64_MAX - 4, std::uint64_t{1} << 40, std::uint64_t{1} << 63}) {
    reset_peak();
    expect_refused(open_gguf(one_key("k", 8, ByteBuilder().u64(4 + extra).raw("text")).bytes()),
                   "key 'k': length");
    EXPECT_LT(peak_bytes(), kMiB);
  }
  EXPECT_TRUE(open_gguf(one_key("k", 8, ByteBuilder().str("text")).bytes()));
  const std::string large(64 * kMiB + 1, 'x');
  expect_refused(open_gguf(one_key("k", 8, ByteBuilder().str(large)).bytes()), "over the limit of 67108864");
  expect_refused(open_gguf(one_key("k", 9, ByteBuilder().u32(8).u64(1).str(large)).bytes()),
                 "over the limit");
}

TEST(GgufBadInputTest, Row8UnknownTypesAndArraysOfArraysAreRefused) {
  for (const std::uint32_t type : {13U, 0x80000000U, 0xffffffffU}) {
    expect_refused(open_gguf(one_key("k", type, ByteBuilder().zeros(32)).bytes()), "unknown value type");
    expect_refused(open_gguf(one_key("k", 9, ByteBuilder().u32(type).u64(1).zeros(32)).bytes()),
                   "unknown array type");
  }
  expect_refused(open_gguf(one_key("k", 9, ByteBuilder().u32(9).u64(1).u32(0).u64(1).u8(1)).bytes()),
                 "arrays of arrays");
}

TEST(GgufBadInputTest, Row9ArrayCountsAreDividedNotMultiplied) {
  const std::uint64_t counts[] = {std::uint64_t{1} << 61, std::uint64_t{1} << 62, UINT64_MAX, 100};
  for (const std::uint32_t type : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 10U, 11U, 12U}) {
    for (const auto n : counts) {
      reset_peak();
      expect_refused(open_gguf(one_key("k", 9, ByteBuilder().u32(type).u64(n).zeros(64)).bytes()),
                     "64 bytes left");
      EXPECT_LT(peak_bytes(), kMiB);
    }
  }
}

TEST(GgufBadInputTest, Row10BoolsAreZeroOrOne) {
  for (const int value : {2, 255}) {
    expect_refused(open_gguf(one_key("k", 7, ByteBuilder().u8(static_cast<std::uint8_t>(value))).bytes()),
                   "byte 37: key 'k': bool must be 0 or 1");
    const ByteBuilder array = ByteBuilder().u32(7).u64(3).u8(1).u8(0).u8(static_cast<std::uint8_t>(value));
    expect_refused(open_gguf(one_key("k", 9, array).bytes()), "byte 51: key 'k'[2]: bool must be 0 or 1");
  }
}

TEST(GgufBadInputTest, Row11AlignmentIsAU32PowerOfTwoUpToOneMiB) {
  for (const std::uint32_t value : {0U, 3U, 33U, 1U << 21, 1U << 31}) {
    expect_refused(open_gguf(one_key("general.alignment", 4, ByteBuilder().u32(value)).bytes()),
                   "power of two");
  }
  expect_refused(open_gguf(one_key("general.alignment", 5, ByteBuilder().u32(32)).bytes()), "got i32 32");
  expect_refused(open_gguf(one_key("general.alignment", 10, ByteBuilder().u64(32)).bytes()), "got u64 32");
  expect_refused(open_gguf(one_key("general.alignment", 8, ByteBuilder().str("32")).bytes()), "got string");
  for (const std::uint32_t value : {1U, 32U, 1U << 20}) {
    const auto file = open_gguf(one_key("general.alignment", 4, ByteBuilder().u32(value)).bytes());
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->alignment(), value);
  }
  ByteBuilder twice = gguf_start(0, 2);
  for (int i = 0; i < 2; ++i) twice.str("general.alignment").u32(4).u32(32);
  expect_refused(open_gguf(twice.bytes()), "key 'general.alignment' occurs twice");
}

TEST(GgufBadInputTest, Row12RepeatedKeysAndNamesAreRefused) {
  ByteBuilder keys = gguf_start(0, 3);
  for (const char* key : {"b", "a", "b"}) keys.str(key).u32(0).u8(1);
  expect_refused(open_gguf(keys.bytes()), "key 'b' occurs twice");
  ByteBuilder names = gguf_start(2, 0).append(table_row("t", {8}, 0, 0)).append(table_row("t", {8}, 0, 32));
  expect_refused(open_gguf(names.pad(32).zeros(64).bytes()), "tensor name 't' occurs twice");
}

TEST(GgufBadInputTest, Row13RankIsAtMostFour) {
  for (const std::uint32_t rank : {5U, 1U << 31, UINT32_MAX}) {
    reset_peak();
    expect_refused(open_gguf(gguf_start(1, 0).str("t").u32(rank).zeros(256).bytes()), "n_dims");
    EXPECT_LT(peak_bytes(), kMiB);
  }
  EXPECT_TRUE(open_gguf(one_tensor(table_row("t", {1, 2, 1, 2}, 0, 0), 16).bytes()));
  const auto scalar = open_gguf(one_tensor(table_row("t", {}, 0, 0), 4).bytes());
  ASSERT_TRUE(scalar) << scalar.error().message;
  EXPECT_EQ(scalar->tensors()[0].num_elements(), 1);
}

TEST(GgufBadInputTest, Rows14And16SizesThatOverflowAreRefused) {
  const std::uint64_t one = 1;
  const std::vector<std::vector<std::uint64_t>> shapes = {
      {one << 32, one << 32},     {one << 62},  {one << 63},
      {(one << 42) + 1, 1152},    {UINT64_MAX}, {one << 40, 1, one << 40, 0},
      {0x7FFFFFFFFFFFFFC0ULL / 4}};
  for (const auto& shape : shapes) {
    for (const std::uint32_t type : {0U, 1U, 24U, 28U}) {
      expect_refused(open_gguf(one_tensor(table_row("t", shape, type, 0), 64).bytes()), "tensor 't'");
    }
  }
  // Two tensors whose running sum wraps: the first does not fit already.
  ByteBuilder two = gguf_start(2, 0);
  two.append(table_row("a", {0x7FFFFFFFFFFFFFC0ULL}, 24, 0));
  two.append(table_row("b", {0x7FFFFFFFFFFFFFC0ULL}, 24, 0x7FFFFFFFFFFFFFC0ULL));
  expect_refused(open_gguf(two.pad(32).zeros(64).bytes()), "past the end of the file");
}

TEST(GgufBadInputTest, Row15EmptyTensorsAreListedAndReadable) {
  for (std::size_t at = 0; at < 4; ++at) {
    std::vector<std::uint64_t> shape{32, 3, 2, 2};
    shape[at] = 0;
    for (const std::uint32_t type : {0U, 3U, 8U}) {
      const auto file = open_gguf(one_tensor(table_row("t", shape, type, 0), 0).bytes());
      ASSERT_TRUE(file) << file.error().message;
      const auto& info = file->tensors()[0];
      EXPECT_EQ(info.num_elements(), 0);
      EXPECT_EQ(info.num_bytes, 0U);
      EXPECT_TRUE(file->read_f32(info, 0, info.num_rows(), {}));
    }
  }
}

TEST(GgufBadInputTest, Row17RemovedAndUnknownTypesAreRefusedWithTheirNumber) {
  for (const std::uint32_t type : {4U, 5U, 31U, 36U}) {
    expect_refused(open_gguf(one_tensor(table_row("t", {32}, type, 0), 256).bytes()),
                   "was removed from GGUF");
  }
  for (const std::uint32_t type : {42U, 255U, UINT32_MAX}) {
    expect_refused(open_gguf(one_tensor(table_row("t", {32}, type, 0), 256).bytes()),
                   std::to_string(type) + " is unknown");
  }
}

TEST(GgufBadInputTest, Row17KnownTypesWithoutDecoderAreListedAndRefusedByNameWhenRead) {
  for (const auto& row : data_types()) {
    if (row.gguf_id < 0) continue;
    const auto id = static_cast<std::uint32_t>(row.gguf_id);
    const auto file = open_gguf(one_tensor(table_row("t", {256, 1}, id, 0), 4096).bytes());
    ASSERT_TRUE(file) << file.error().message;
    std::vector<float> out(256);
    const auto read = file->read_f32(file->tensors()[0], 0, 1, out);
    if (row.readable) {
      EXPECT_TRUE(read) << row.name;
    } else {
      expect_refused(read, std::string("type ") + row.name + " cannot be read");
    }
  }
}

TEST(GgufBadInputTest, Row18RowsThatSplitABlockAreRefused) {
  for (const std::uint32_t type : {2U, 3U, 8U}) {
    expect_refused(open_gguf(one_tensor(table_row("t", {33, 32}, type, 0), 65536).bytes()), "split a block");
  }
  expect_refused(open_gguf(one_tensor(table_row("t", {128, 2}, 12, 0), 65536).bytes()), "split a block");
}

TEST(GgufBadInputTest, Row19OffsetsAreTheRunningPaddedSum) {
  for (const std::uint64_t second : {std::uint64_t{33}, std::uint64_t{0}, std::uint64_t{16},
                                     std::uint64_t{64}, UINT64_MAX - 31, std::uint64_t{1} << 40}) {
    ByteBuilder b = gguf_start(2, 0).append(table_row("a", {4}, 0, 0)).append(table_row("b", {4}, 0, second));
    expect_refused(open_gguf(b.pad(32).zeros(256).bytes()), "tensor 'b': offset");
  }
  expect_refused(open_gguf(one_tensor(table_row("a", {4}, 0, 32), 256).bytes()), "tensor 'a': offset 32");
}

TEST(GgufBadInputTest, Row20AMissingByteIsRefusedAndTrailingBytesWarn) {
  const auto whole = one_tensor(table_row("t", {5}, 0, 0), 20);
  auto bytes = whole.bytes();
  EXPECT_TRUE(open_gguf(bytes)->warnings().empty());
  bytes.pop_back();
  expect_refused(open_gguf(bytes), "past the end of the file");
  EXPECT_TRUE(open_gguf(ByteBuilder(whole).zeros(32).bytes())->warnings().empty());
  const auto file = open_gguf(ByteBuilder(whole).zeros(33).bytes());
  ASSERT_TRUE(file);
  ASSERT_EQ(file->warnings().size(), 1U);
  EXPECT_NE(file->warnings()[0].find("33 bytes follow"), std::string::npos);
}

TEST(GgufBadInputTest, Row30ManyTensorsCostStepsInProportion) {
  constexpr std::uint64_t kCount = 100000;
  ByteBuilder b = gguf_start(kCount, 0);
  for (std::uint64_t i = 0; i < kCount; ++i) b.append(table_row(fmt::format("t{}", i), {1}, 0, 32 * i));
  b.pad(32).zeros(32 * kCount);
  const std::uint64_t before = num_allocations();
  reset_peak();
  const auto file = open_gguf(b.bytes());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_LT(num_allocations() - before, 10 * kCount);
  EXPECT_LT(peak_bytes(), 2 * b.size() + 40 * kMiB);
  EXPECT_EQ(file->find("t99999")->file_offset, file->tensors()[0].file_offset + 32 * 99999);
  EXPECT_EQ(file->find("t100000"), nullptr);
}

TEST(GgufBadInputTest, Row31ValuesOfTensorsAreNotJudged) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto file =
      open_gguf(gguf_start(1, 0).append(table_row("t", {2}, 0, 0)).pad(32).f32(nan).f32(1).bytes());
  ASSERT_TRUE(file);
  std::vector<float> out(2);
  ASSERT_TRUE(file->read_f32(file->tensors()[0], 0, 1, out));
  EXPECT_NE(out[0], out[0]);
}

TEST(GgufBadInputTest, Row32EveryPrefixIsRefused) {
  const auto whole = sample().bytes();
  ASSERT_TRUE(open_gguf(whole));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    expect_refused(open_gguf({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}), "byte");
  }
}

TEST(GgufBadInputTest, Row32EveryFlippedBitIsRefusedOrOpensCleanly) {
  const auto whole = sample().bytes();
  for (std::size_t i = 0; i < whole.size() * 8; ++i) {
    auto bytes = whole;
    bytes[i / 8] ^= std::byte{1} << (i % 8);
    reset_peak();
    const auto file = open_gguf(bytes);
    EXPECT_LT(peak_bytes(), kMiB);
    if (!file) {
      EXPECT_EQ(file.error().kind, ErrorKind::kInvalidContent) << "bit " << i << ": " << file.error().message;
      continue;
    }
    for (const auto& info : file->tensors()) {
      std::vector<float> out(static_cast<std::size_t>(info.num_elements()));
      const auto read = file->read_f32(info, 0, info.num_rows(), out);
      EXPECT_TRUE(read || !is_readable(info.type)) << "bit " << i << ": " << read.error().message;
    }
  }
}

TEST(GgufBadInputTest, EveryFieldSetToAnExtremeIsRefusedOrOpensCleanly) {
  const auto whole = sample().bytes();
  const std::uint64_t size = whole.size();
  const std::uint64_t one = 1;
  for (const std::uint64_t value : {std::uint64_t{0}, one, UINT64_MAX, UINT64_MAX - 1, one << 31, one << 32,
                                    one << 63, size, size - 1, size + 1}) {
    for (std::size_t i = 4; i + 8 <= whole.size(); ++i) {
      for (const std::size_t width : {std::size_t{4}, std::size_t{8}}) {
        auto bytes = whole;
        std::memcpy(&bytes[i], &value, width);
        reset_peak();
        const auto file = open_gguf(bytes);
        ASSERT_LT(peak_bytes(), kMiB) << "byte " << i;
        if (!file) {
          ASSERT_EQ(file.error().kind, ErrorKind::kInvalidContent) << "byte " << i;
        }
      }
    }
  }
}

TEST(GgufBadInputTest, Row112ARefusedAllocationIsThrownAndLeavesNothingBehind) {
  const auto bytes = memory_bytes("test.gguf", sample().bytes());
  const std::uint64_t before = num_allocations();
  ASSERT_TRUE(GgufFile::open(bytes));
  const std::uint64_t count = num_allocations() - before;
  EXPECT_GT(count, 10U);
  for (std::uint64_t n = 1; n <= count; ++n) {
    const std::size_t live = live_bytes();
    fail_allocation(n);
    bool threw = false;
    try {
      static_cast<void>(GgufFile::open(bytes));
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    fail_allocation(0);
    EXPECT_TRUE(threw) << n << " of " << count;
    EXPECT_EQ(live_bytes(), live) << n << " of " << count;
  }
}

TEST(GgufBadInputTest, MetadataTakesNoMoreMemoryThanItsBytes) {
  constexpr std::uint64_t kCount = 1000000;
  ByteBuilder strings;
  strings.u32(8).u64(kCount);
  for (std::uint64_t i = 0; i < kCount; ++i) strings.str(i % 2 == 0 ? "" : "ab");
  const auto bytes = one_key("k", 9, strings).bytes();
  const auto source = memory_bytes("test.gguf", bytes);
  reset_peak();
  const auto file = GgufFile::open(source);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_LT(peak_bytes(), bytes.size() + kMiB);
  EXPECT_EQ((**file->metadata().get_strings("k"))[999999], "ab");
}

}  // namespace
}  // namespace sightline::testing_formats
