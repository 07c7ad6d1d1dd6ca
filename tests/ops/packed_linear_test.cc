#include "sightline/ops/packed_linear.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

#include "ops/linear_case.h"
#include "ops/quant_layer.h"

namespace sightline {
namespace {

using test::Layer;
using test::name_of;
using test::normals;
using test::pack_rows;
using test::QuantLayer;
using test::run;
using test::same_bits;

TEST(PackedLinearTest, AsksForAtMostOnePanelOfRowsAtATimeAscending) {
  std::int64_t next = 0;
  const auto packed =
      PackedLinear::pack(70, 3, [&](std::int64_t begin, std::int64_t end, std::span<float> rows) {
        EXPECT_EQ(begin, next);
        EXPECT_LE(end - begin, PackedLinear::kPanelColumns);
        EXPECT_EQ(std::ssize(rows), (end - begin) * 3);
        next = end;
        std::fill(rows.begin(), rows.end(), 1.0F);
        return Result<void>();
      });
  ASSERT_TRUE(packed);
  EXPECT_EQ(next, 70);
  EXPECT_EQ(packed->bytes(), 96U * 3U * 4U);  // padded to three panels
}

TEST(PackedLinearTest, ColumnsBehindTheLastOutputAreZero) {
  const Layer layer{33, 5};
  const PackedLinear packed = layer.pack();
  for (std::int64_t k = 0; k < 5; ++k) {
    for (std::int64_t n = 1; n < PackedLinear::kPanelColumns; ++n) {
      const auto* const panel = reinterpret_cast<const float*>(packed.pieces()[0].panel(1));
      EXPECT_EQ(panel[k * PackedLinear::kPanelColumns + n], 0.0F);
    }
  }
}

TEST(PackedLinearTest, ErrorOfTheReaderIsPassedOn) {
  const auto packed =
      PackedLinear::pack(70, 3, [&](std::int64_t begin, std::int64_t, std::span<float>) -> Result<void> {
        if (begin == 32) return fail(ErrorKind::kIo, "short read at {}", begin);
        return {};
      });
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().kind, ErrorKind::kIo);
  EXPECT_EQ(packed.error().message, "short read at 32");
}

TEST(PackedLinearTest, RefusesSizesThatAreNotPositiveOrOverflow) {
  const auto never = [](std::int64_t, std::int64_t, std::span<float>) -> Result<void> {
    ADD_FAILURE() << "read before the sizes were checked";
    return {};
  };
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  const std::pair<std::int64_t, std::int64_t> bad[] = {{0, 3},    {3, 0},    {-1, 3},
                                                       {huge, 3}, {3, huge}, {huge, huge}};
  for (const auto& [out_dim, in_dim] : bad) {
    const auto packed = PackedLinear::pack(out_dim, in_dim, never);
    ASSERT_FALSE(packed) << out_dim << " x " << in_dim;
    EXPECT_EQ(packed.error().kind, ErrorKind::kInvalidArgument);
  }
}

TEST(PackedLinearTest, UnpackedRowIsTheRowThatWasPacked) {
  const Layer layer{67, 33};
  const PackedLinear packed = layer.pack();
  for (std::int64_t n = 0; n < 67; ++n) {
    std::vector<float> row(33);
    packed.unpack_row(n, row);
    EXPECT_TRUE(same_bits(row.data(), layer.w.data() + n * 33, 33)) << n;
  }
}

TEST(PackedLinearTest, QuantisedRowsComeBackAsTheirValuesAndTakeNoMoreThanTheyDoInAFile) {
  // Bytes of a block in a file: ggml-common.h. K types keep scales of 6 bits in bytes.
  const std::int64_t file_bytes[] = {34, 18, 20, 144 + 4, 176 + 4, 210};
  for (const QuantKind kind : kQuantKinds) {
    const QuantLayer layer(kind, 64, 512);
    const PackedLinear packed = layer.pack();
    EXPECT_EQ(static_cast<std::int64_t>(packed.bytes()),
              64 * layer.blocks_per_row() * file_bytes[static_cast<int>(kind)]);
    EXPECT_EQ(static_cast<std::int64_t>(packed.bytes()),
              PackedLinear::packed_bytes(WeightStorage::kQuantised, kind, 64, 512));
    for (std::int64_t n = 0; n < 64; ++n) {
      std::vector<float> row(512);
      packed.unpack_row(n, row);
      EXPECT_EQ(row, layer.values(n)) << name_of(kind) << " row " << n;
    }
  }
}

TEST(PackedLinearTest, RefusesInputsThatAreNoWholeBlocks) {
  const auto never = [](std::int64_t, std::int64_t, std::span<QuantBlock>) -> Result<void> {
    ADD_FAILURE() << "read before the sizes were checked";
    return {};
  };
  for (const auto& [kind, in_dim] : {std::pair{QuantKind::kQ4_0, 33}, {QuantKind::kQ4_K, 288}}) {
    const auto packed = PackedLinear::pack_quantised(kind, 3, in_dim, never);
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().kind, ErrorKind::kInvalidArgument);
  }
}

TEST(PackedLinearTest, StackedPartsOfSeveralKindsGiveWhatEachGivesAlone) {
  const std::int64_t in_dim = 512;
  const QuantLayer first(QuantKind::kQ4_K, 40, in_dim), second(QuantKind::kQ6_K, 32, in_dim);
  const auto w = normals(5 * 512, 7);
  std::vector<PackedLinear> parts;
  parts.push_back(first.pack());
  parts.push_back(second.pack());
  parts.push_back(pack_rows(w, 5, in_dim));
  const PackedLinear alone[] = {first.pack(), second.pack(), pack_rows(w, 5, in_dim)};
  auto all = PackedLinear::stack(std::move(parts));
  ASSERT_TRUE(all);
  EXPECT_EQ(all->out_dim(), 77);
  EXPECT_EQ(all->in_dim(), in_dim);
  const auto x = normals(14 * 512, 9);
  const auto bias = normals(77, 3);
  const auto y = run(*all, bias, x.data(), 14, {.num_threads = 2});
  std::size_t begin = 0;
  for (const PackedLinear& part : alone) {
    const auto width = static_cast<std::size_t>(part.out_dim());
    const std::vector<float> own(bias.begin() + static_cast<std::ptrdiff_t>(begin),
                                 bias.begin() + static_cast<std::ptrdiff_t>(begin + width));
    const auto expected = run(part, own, x.data(), 14);
    for (std::size_t i = 0; i < 14; ++i) {
      EXPECT_TRUE(same_bits(&y[i * 77 + begin], &expected[i * width], part.out_dim())) << begin << " " << i;
      std::vector<float> whole(512), piece(512);
      all->unpack_row(static_cast<std::int64_t>(begin), whole);
      part.unpack_row(0, piece);
      EXPECT_EQ(whole, piece);
    }
    begin += width;
  }
  std::vector<PackedLinear> wrong;
  wrong.push_back(first.pack());
  wrong.push_back(QuantLayer(QuantKind::kQ8_0, 3, 32).pack());
  EXPECT_EQ(PackedLinear::stack(std::move(wrong)).error().kind, ErrorKind::kInvalidArgument);
}

}  // namespace
}  // namespace sightline
