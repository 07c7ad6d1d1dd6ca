#include "sightline/formats/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "byte_builder.h"
#include "sightline/base/half.h"
#include "sightline/base/rng.h"

namespace sightline::testing_formats {
namespace {

// Plain decoders, written from the block layouts of ggml-common.h and not from the code under test.
double f16_value(unsigned bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31U);
  const double fraction = (bits & 1023U) / 1024.0;
  return exponent == 0 ? sign * std::ldexp(fraction, -14) : sign * std::ldexp(1 + fraction, exponent - 15);
}

unsigned u16_at(const std::vector<std::byte>& b, std::size_t i) {
  return std::to_integer<unsigned>(b[i]) | (std::to_integer<unsigned>(b[i + 1]) << 8);
}

// Value `i` of a row, exact in double.
double plain_value(DataType type, const std::vector<std::byte>& b, std::size_t i) {
  const std::size_t block = i / 32;
  const std::size_t j = i % 32;
  const auto nibble = [&](std::size_t begin) {
    const unsigned byte = std::to_integer<unsigned>(b[begin + j % 16]);
    return static_cast<int>(j < 16 ? byte % 16 : byte / 16);
  };
  switch (type) {
    case DataType::kQ8_0: {
      const int q = std::to_integer<int>(b[block * 34 + 2 + j]);
      return f16_value(u16_at(b, block * 34)) * (q < 128 ? q : q - 256);
    }
    case DataType::kQ4_0:
      return f16_value(u16_at(b, block * 18)) * (nibble(block * 18 + 2) - 8);
    case DataType::kQ4_1:
      return f16_value(u16_at(b, block * 20)) * nibble(block * 20 + 4) + f16_value(u16_at(b, block * 20 + 2));
    default:
      return f16_value(u16_at(b, 2 * i));
  }
}

TEST(DequantizeTest, BlocksEqualThePlainDecoderOnRandomBytes) {
  Rng rng(7);
  for (const DataType type : {DataType::kQ8_0, DataType::kQ4_0, DataType::kQ4_1, DataType::kF16}) {
    constexpr std::size_t kValues = 32 * 200;
    std::vector<std::byte> bytes(*row_bytes(type, kValues));
    for (auto& byte : bytes) byte = static_cast<std::byte>(rng.next_u64() & 0xffU);
    // Finite scales: exponents below 31 (infinities are compared apart).
    const std::size_t step = type == DataType::kF16 ? 2 : data_type_info(type).block_bytes;
    for (std::size_t i = 0; i < bytes.size(); i += step) {
      bytes[i + 1] &= std::byte{0xbb};
      if (type == DataType::kQ4_1) bytes[i + 3] &= std::byte{0xbb};
    }
    std::vector<float> out(kValues);
    ASSERT_TRUE(dequantize_row(type, bytes, out));
    for (std::size_t i = 0; i < kValues; ++i) {
      // Q4_1 rounds the product and then the sum; the others are exact in double and rounded once.
      if (type == DataType::kQ4_1) {
        const double m = f16_value(u16_at(bytes, i / 32 * 20 + 2));
        const float product = static_cast<float>(plain_value(type, bytes, i) - m);
        EXPECT_EQ(out[i], product + static_cast<float>(m)) << i;
      } else {
        EXPECT_EQ(out[i], static_cast<float>(plain_value(type, bytes, i))) << to_string(type) << ' ' << i;
      }
    }
  }
}

TEST(DequantizeTest, NibblesOfAQ4BlockAreTheTwoHalvesOfIt) {
  ByteBuilder b = ByteBuilder().put(std::uint16_t{0x3c00}).put(std::uint16_t{0x4000});  // d = 1, m = 2
  for (std::uint8_t i = 0; i < 16; ++i) b.u8(static_cast<std::uint8_t>(i | ((15 - i) << 4)));
  std::vector<float> out(32);
  ASSERT_TRUE(dequantize_row(DataType::kQ4_1, b.bytes(), out));
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(out[i], 2.0F + static_cast<float>(i));
    EXPECT_EQ(out[i + 16], 17.0F - static_cast<float>(i));
  }
}

TEST(DequantizeTest, PlainNumbersConvertByValue) {
  std::vector<float> out(2);
  const auto expect = [&](DataType type, const ByteBuilder& b, float first, float second) {
    ASSERT_TRUE(dequantize_row(type, b.bytes(), out)) << to_string(type);
    EXPECT_EQ(out[0], first) << to_string(type);
    EXPECT_EQ(out[1], second) << to_string(type);
  };
  expect(DataType::kF32, ByteBuilder().f32(1.5F).f32(-2), 1.5F, -2);
  expect(DataType::kF64, ByteBuilder().put(0.1).put(1e300), 0.1F, INFINITY);
  expect(DataType::kBF16, ByteBuilder().put(std::uint16_t{0x3fc0}).put(std::uint16_t{0xc000}), 1.5F, -2);
  expect(DataType::kI8, ByteBuilder().put(std::int8_t{-128}).put(std::int8_t{5}), -128, 5);
  expect(DataType::kU8, ByteBuilder().u8(255).u8(1), 255, 1);
  expect(DataType::kBool, ByteBuilder().u8(0).u8(1), 0, 1);
  expect(DataType::kI16, ByteBuilder().put(std::int16_t{-300}).put(std::int16_t{7}), -300, 7);
  expect(DataType::kU16, ByteBuilder().put(std::uint16_t{65535}).put(std::uint16_t{7}), 65535, 7);
  expect(DataType::kI32, ByteBuilder().put(std::int32_t{-16777217}).put(7), -16777216, 7);
  expect(DataType::kU32, ByteBuilder().u32(UINT32_MAX).u32(7), 4294967296.0F, 7);
  expect(DataType::kI64, ByteBuilder().put(std::int64_t{-5}).put(std::int64_t{7}), -5, 7);
  expect(DataType::kU64, ByteBuilder().u64(UINT64_MAX).u64(7), 18446744073709551616.0F, 7);
}

// Two blocks of bytes by a formula and what gguf 0.19.0 (quants.dequantize, numpy) makes of them: values by
// place, their sum, and their sum weighted by place, all exact in double because every d is a power of two.
struct KBlocks {
  DataType type;
  std::vector<std::pair<std::size_t, float>> values;
  double sum, weighted_sum;
};

const KBlocks kKBlocks[] = {
    {DataType::kQ4_K,
     {{0, 9.75F},      {1, 11.0F},     {15, 9.75F},      {16, -0.25F},     {31, 1.0F},
      {32, 24.25F},    {63, 27.75F},   {64, 35.125F},    {95, 24.625F},    {96, 13.4375F},
      {127, 31.0625F}, {128, -1.625F}, {160, 2.5625F},   {191, -5.25F},    {200, 2.875F},
      {224, 6.875F},   {255, 6.875F},  {256, -0.15625F}, {300, -71.4375F}, {511, -10.5F}},
     -13490.75,
     -5621117.9375},
    {DataType::kQ5_K,
     {{0, 17.25F},   {1, 31.0F},     {15, 6.0F},        {16, 2.25F},   {31, 32.25F},
      {32, 13.75F},  {63, 34.75F},   {64, 1.0F},        {95, 11.5F},   {96, 60.4375F},
      {127, -1.25F}, {128, -1.625F}, {160, 4.125F},     {191, 4.125F}, {200, 11.875F},
      {224, 30.5F},  {255, 38.375F}, {256, -195.5625F}, {300, -8.0F},  {511, -352.78125F}},
     -28167.5,
     -12769518.4375},
    {DataType::kQ6_K,
     {{0, 73.5625F},  {1, 46.8125F},   {15, -180.5625F}, {16, 39.0F},    {31, -39.0F},
      {32, -126.0F},  {63, -42.625F},  {64, -75.0F},     {95, -165.75F}, {96, -148.3125F},
      {127, -0.0F},   {128, -30.0F},   {160, 97.5F},     {191, -52.5F},  {200, -14.0625F},
      {224, -6.375F}, {255, -66.375F}, {256, 223.25F},   {300, 192.5F},  {511, -7.5F}},
     -4759.0625,
     -2033899.5}};

TEST(DequantizeTest, BlocksOf256AreWhatTheFormatsOwnPackageReads) {
  for (const KBlocks& expected : kKBlocks) {
    const std::size_t block_bytes = data_type_info(expected.type).block_bytes;
    std::vector<std::byte> bytes(2 * block_bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>((i * i * 7 + i * 37 + 11) % 251);
    }
    const auto put = [&](std::size_t at, unsigned f16_bits) {
      bytes[at] = static_cast<std::byte>(f16_bits & 0xffU);
      bytes[at + 1] = static_cast<std::byte>(f16_bits >> 8U);
    };
    const std::size_t d_at = expected.type == DataType::kQ6_K ? 208 : 0;
    put(d_at, 0x2c00);                // 1/16
    put(block_bytes + d_at, 0xb400);  // -1/4
    if (expected.type != DataType::kQ6_K) {
      put(2, 0x3000);                // 1/8
      put(block_bytes + 2, 0x2800);  // 1/32
    }
    std::vector<float> values(512);
    ASSERT_TRUE(dequantize_row(expected.type, bytes, values));
    double sum = 0, weighted_sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += values[i];
      weighted_sum += static_cast<double>(i + 1) * values[i];
    }
    EXPECT_EQ(sum, expected.sum) << to_string(expected.type);
    EXPECT_EQ(weighted_sum, expected.weighted_sum) << to_string(expected.type);
    for (const auto& [i, value] : expected.values) {
      EXPECT_EQ(values[i], value) << to_string(expected.type) << " value " << i;
    }
  }
}

TEST(DequantizeTest, ANanScalePassesThrough) {
  ByteBuilder b = ByteBuilder().put(std::uint16_t{0x7e00}).zeros(32);
  std::vector<float> out(32);
  ASSERT_TRUE(dequantize_row(DataType::kQ8_0, b.bytes(), out));
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(DequantizeTest, WrongSizesAndTypesWithoutDecoderAreRefused) {
  std::vector<float> out(32);
  const std::vector<std::byte> bytes(34);
  EXPECT_EQ(dequantize_row(DataType::kQ8_0, std::span(bytes).first(33), out).error().kind,
            ErrorKind::kInvalidArgument);
  EXPECT_EQ(dequantize_row(DataType::kQ8_0, bytes, std::span(out).first(31)).error().kind,
            ErrorKind::kInvalidArgument);
  EXPECT_EQ(dequantize_row(DataType::kQ3_K, {}, {}).error().kind, ErrorKind::kInvalidContent);
  EXPECT_NE(dequantize_row(DataType::kQ3_K, {}, {}).error().message.find("Q3_K"), std::string::npos);
}

TEST(QuantizeTest, Q8_0ErrsByAtMostHalfAStepPlusTheScalesRounding) {
  Rng rng(3);
  std::vector<float> values(32 * 64);
  for (auto& x : values) x = static_cast<float>(3 * (rng.next_uniform() - 0.5));
  std::vector<std::byte> bytes(*row_bytes(DataType::kQ8_0, values.size()));
  ASSERT_TRUE(quantize_row(DataType::kQ8_0, values, bytes));
  std::vector<float> back(values.size());
  ASSERT_TRUE(dequantize_row(DataType::kQ8_0, bytes, back));
  for (std::size_t block = 0; block < values.size(); block += 32) {
    float largest = 0;
    for (std::size_t i = block; i < block + 32; ++i) largest = std::max(largest, std::fabs(values[i]));
    const float step = largest / 127;
    for (std::size_t i = block; i < block + 32; ++i) {
      EXPECT_LE(std::fabs(back[i] - values[i]), 0.5F * step + largest * 0x1p-11F) << i;
    }
  }
}

TEST(QuantizeTest, Q8_0BlocksAreThoseOfTheDefinition) {
  std::vector<float> values(32, 0.0F);
  values[0] = 127.0F;
  values[1] = -127.0F;
  values[2] = 1.5F;  // half rounds away from zero
  values[3] = -2.5F;
  std::vector<std::byte> bytes(34);
  ASSERT_TRUE(quantize_row(DataType::kQ8_0, values, bytes));
  EXPECT_EQ(u16_at(bytes, 0), 0x3c00U);  // d = 1
  EXPECT_EQ(std::to_integer<int>(bytes[2]), 127);
  EXPECT_EQ(std::to_integer<int>(bytes[3]), 256 - 127);
  EXPECT_EQ(std::to_integer<int>(bytes[4]), 2);
  EXPECT_EQ(std::to_integer<int>(bytes[5]), 256 - 3);
}

TEST(QuantizeTest, ZeroTinyAndNonFiniteBlocksAreDefined) {
  std::vector<float> values(32, 0.0F);
  std::vector<std::byte> bytes(34);
  ASSERT_TRUE(quantize_row(DataType::kQ8_0, values, bytes));
  for (const auto byte : bytes) EXPECT_EQ(byte, std::byte{0});
  values[3] = 1e-44F;  // its scale is subnormal and has no finite inverse
  EXPECT_TRUE(quantize_row(DataType::kQ8_0, values, bytes));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    values[3] = bad;
    EXPECT_EQ(quantize_row(DataType::kQ8_0, values, bytes).error().kind, ErrorKind::kInvalidArgument);
  }
}

TEST(QuantizeTest, HalfTypesRoundToNearestEven) {
  const std::vector<float> values{1.0F, -1.0F - 0x1p-8F, 1.0F + 3 * 0x1p-8F, 65520.0F};
  std::vector<std::byte> bytes(8);
  ASSERT_TRUE(quantize_row(DataType::kBF16, values, bytes));
  EXPECT_EQ(u16_at(bytes, 0), 0x3f80U);
  EXPECT_EQ(u16_at(bytes, 2), 0xbf80U);
  EXPECT_EQ(u16_at(bytes, 4), 0x3f82U);
  ASSERT_TRUE(quantize_row(DataType::kF16, values, bytes));
  EXPECT_EQ(u16_at(bytes, 6), 0x7c00U);
}

TEST(QuantizeTest, TypesThatAreNotWrittenAreRefusedByName) {
  const std::vector<float> values(32);
  std::vector<std::byte> bytes(18);
  const auto result = quantize_row(DataType::kQ4_0, values, bytes);
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_NE(result.error().message.find("Q4_0"), std::string::npos);
}

}  // namespace
}  // namespace sightline::testing_formats
