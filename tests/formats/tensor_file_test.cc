#include "sightline/formats/tensor_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "allocation_counter.h"
#include "byte_builder.h"
#include "sightline/formats/quantize.h"

namespace sightline::testing_formats {
namespace {

Result<TensorSource> one(TensorInfo info, std::size_t file_bytes) {
  return TensorSource::create("test", {memory_bytes("test.bin", std::vector<std::byte>(file_bytes))},
                              {std::move(info)});
}

TEST(TensorSourceTest, RangesThatDoNotFitTypeShapeOrFileAreRefused) {
  EXPECT_TRUE(one({"t", DataType::kF32, {2, 3}, 0, 8, 24}, 32));
  expect_refused(one({"t", DataType::kF32, {2, 3}, 0, 8, 20}, 32), "20 bytes are no F32 of shape [2, 3]");
  expect_refused(one({"t", DataType::kF32, {2, 3}, 0, 9, 24}, 32), "past the end of the file");
  expect_refused(one({"t", DataType::kF32, {2, 3}, 0, UINT64_MAX, 24}, 32), "past the end of the file");
  expect_refused(one({"t", DataType::kF32, {-1}, 0, 0, 4}, 32), "shape [-1] is refused");
  expect_refused(one({"t", DataType::kF32, std::vector<std::int64_t>(9, 1), 0, 0, 4}, 32), "rank over 8");
}

TEST(TensorSourceTest, RowRangesAreReadAloneAndEqualTheWhole) {
  for (const auto& type : data_types()) {
    if (!type.readable) continue;
    constexpr std::int64_t kRows = 1000;
    constexpr std::int64_t kLength =
        512;  // whole blocks; the pieces of a read hold fewer rows than there are
    const std::size_t bytes = *row_bytes(type.type, kRows * kLength);
    std::vector<std::byte> data(bytes + 5);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>((i * 7 + i / 256) % 0x3c);
    const std::vector<std::byte> stored(data.begin() + 5, data.end());
    std::vector<float> whole(kRows * kLength);
    ASSERT_TRUE(dequantize_row(type.type, stored, whole));
    const auto source = TensorSource::create("test", {memory_bytes("test.bin", data)},
                                             {{"t", type.type, {10, 100, kLength}, 0, 5, bytes}});
    ASSERT_TRUE(source) << source.error().message;
    const auto& info = source->tensors()[0];
    for (const auto& [begin, end] :
         {std::pair<std::int64_t, std::int64_t>{0, kRows}, {999, 1000}, {3, 3}, {17, 902}}) {
      std::vector<float> rows(static_cast<std::size_t>((end - begin) * kLength));
      const auto read = source->read_f32(info, begin, end, rows);
      ASSERT_TRUE(read) << read.error().message;
      // By bits: values may be NaN. No rows at all (3 to 3) have no data to compare.
      EXPECT_TRUE(rows.empty() ||
                  std::memcmp(rows.data(), whole.data() + begin * kLength, rows.size() * 4) == 0)
          << type.name;
    }
    std::vector<std::byte> all(bytes);
    ASSERT_TRUE(source->read_into(info, all));
    EXPECT_EQ(all, stored);
    std::vector<std::byte> row(*row_bytes(type.type, kLength));
    ASSERT_TRUE(source->read_rows(info, 1, 2, row));
    EXPECT_EQ(std::memcmp(row.data(), stored.data() + row.size(), row.size()), 0);
  }
}

TEST(TensorSourceTest, StreamingALargeTableTakesLittleMemory) {
  constexpr std::int64_t kRows = 20000;
  const std::size_t bytes = *row_bytes(DataType::kQ8_0, kRows * 320);
  const auto source = TensorSource::create("test", {memory_bytes("test.bin", std::vector<std::byte>(bytes))},
                                           {{"t", DataType::kQ8_0, {kRows, 320}, 0, 0, bytes}});
  std::vector<float> rows(kRows * 320);
  reset_peak();
  ASSERT_TRUE(source->read_f32(source->tensors()[0], 0, kRows, rows));
  EXPECT_LT(peak_bytes(), std::size_t{300} << 10);
}

TEST(TensorSourceTest, WrongRowsAndBuffersAreInvalidArguments) {
  const auto source = one({"t", DataType::kF16, {2, 3}, 0, 0, 12}, 12);
  const auto& info = source->tensors()[0];
  std::vector<float> out(6);
  std::vector<std::byte> bytes(12);
  EXPECT_TRUE(source->read_f32(info, 0, 2, out));
  for (const auto& [begin, end] : {std::pair{-1, 1}, std::pair{1, 0}, std::pair{0, 3}}) {
    EXPECT_EQ(source->read_f32(info, begin, end, out).error().kind, ErrorKind::kInvalidArgument);
  }
  EXPECT_EQ(source->read_f32(info, 0, 1, out).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(source->read_rows(info, 0, 1, bytes).error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(source->read_into(info, std::span(bytes).first(11)).error().kind, ErrorKind::kInvalidArgument);
}

TEST(TensorSourceTest, FindIsByWholeName) {
  std::vector<TensorInfo> tensors;
  for (const char* name : {"b", "a", "ab"}) tensors.push_back({name, DataType::kU8, {1}, 0, 0, 1});
  const auto source =
      TensorSource::create("test", {memory_bytes("test.bin", std::vector<std::byte>(1))}, tensors);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->find("a"), &source->tensors()[1]);
  EXPECT_EQ(source->find("ab"), &source->tensors()[2]);
  EXPECT_EQ(source->find(""), nullptr);
  EXPECT_EQ(source->find("abc"), nullptr);
}

TEST(TensorInfoTest, EveryTypeIsFoundByItsNumberAndName) {
  for (const auto& row : data_types()) {
    EXPECT_EQ(&data_type_info(row.type), &row);
    if (row.gguf_id >= 0) {
      EXPECT_EQ(data_type_from_gguf(static_cast<std::uint32_t>(row.gguf_id)), row.type);
    }
    EXPECT_EQ(data_type_from_safetensors(row.name).has_value(), row.in_safetensors) << row.name;
  }
  EXPECT_EQ(row_bytes(DataType::kQ4_1, 64), 40U);
  EXPECT_EQ(row_bytes(DataType::kQ4_1, 33), std::nullopt);
  EXPECT_EQ(row_bytes(DataType::kF64, std::uint64_t{1} << 61), std::nullopt);
}

}  // namespace
}  // namespace sightline::testing_formats
