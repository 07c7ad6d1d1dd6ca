// The linear micro-kernel on every table: one chain per output, whatever rows share the call.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "sightline/kernels/kernel_table.h"
#include "support/normals.h"

namespace sightline::kernels {
namespace {

using test::normals;

// The definition: one chain over k ascending, fused or not as the table says.
float chain(const KernelTable& table, const float* x, const float* panel, std::int64_t num_k, int column) {
  float acc = 0.0F;
  for (std::int64_t k = 0; k < num_k; ++k) {
    const float w = panel[k * kPanelColumns + column];
    if (table.fused_multiply_add) {
      acc = std::fma(x[k], w, acc);
    } else {
      const float product = x[k] * w;
      acc = acc + product;
    }
  }
  return acc;
}

TEST(LinearRowsTest, EveryOutputIsOneChainForAnyNumberOfRows) {
  constexpr std::int64_t kNumK = 77;
  const auto panel = normals(kNumK * kPanelColumns, 1);
  for (const KernelTable* table : available_tables()) {
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
      constexpr std::int64_t kStride = kNumK + 5;
      const auto x = normals(rows * kStride, 2);
      std::vector<float> y(static_cast<std::size_t>(rows * 33), -7.0F);
      LinearArgs args;
      args.x = x.data();
      args.x_stride = kStride;
      args.panel = panel.data();
      args.y = y.data();
      args.y_stride = 33;
      args.num_rows = rows;
      args.num_k = kNumK;
      table->linear_rows(args);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (int c = 0; c < kPanelColumns; ++c) {
          ASSERT_EQ(y[static_cast<std::size_t>(r * 33 + c)],
                    chain(*table, x.data() + r * kStride, panel.data(), kNumK, c))
              << table->name << " rows " << rows << " row " << r << " column " << c;
        }
        ASSERT_EQ(y[static_cast<std::size_t>(r * 33 + 32)], -7.0F) << "wrote past the panel";
      }
    }
  }
}

TEST(LinearRowsTest, CutsOfTheChainAndPackedRowsGiveTheSameBits) {
  constexpr std::int64_t kNumK = 100;
  constexpr std::int64_t kRows = 31;
  const auto panel = normals(kNumK * kPanelColumns, 3);
  const auto x = normals(kRows * kNumK, 4);
  constexpr std::int64_t kGroups = (kRows + kGroupRows - 1) / kGroupRows;
  std::vector<float> packed(static_cast<std::size_t>(kGroups * kNumK * kGroupRows), NAN);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t k = 0; k < kNumK; ++k) {
      packed[static_cast<std::size_t>((r / kGroupRows * kNumK + k) * kGroupRows + r % kGroupRows)] =
          x[static_cast<std::size_t>(r * kNumK + k)];
    }
  }
  for (const KernelTable* table : available_tables()) {
    LinearArgs args;
    args.x = x.data();
    args.x_stride = kNumK;
    args.panel = panel.data();
    args.num_rows = kRows;
    args.num_k = kNumK;
    args.y_stride = kPanelColumns;
    std::vector<float> whole(kRows * kPanelColumns);
    args.y = whole.data();
    table->linear_rows(args);

    std::vector<float> cut(kRows * kPanelColumns, NAN);
    args.y = cut.data();
    for (const auto& [begin, end] : {std::pair<int, int>{0, 1}, {1, 64}, {64, 100}}) {
      args.x = x.data() + begin;
      args.panel = panel.data() + begin * kPanelColumns;
      args.num_k = end - begin;
      args.accumulate = begin > 0;
      table->linear_rows(args);
    }
    EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0) << table->name;

    std::vector<float> from_packed(kRows * kPanelColumns, NAN);
    args = LinearArgs{};
    args.x_packed = packed.data();
    args.panel = panel.data();
    args.y = from_packed.data();
    args.y_stride = kPanelColumns;
    args.num_rows = kRows;
    args.num_k = kNumK;
    table->linear_rows(args);
    EXPECT_EQ(std::memcmp(whole.data(), from_packed.data(), whole.size() * sizeof(float)), 0) << table->name;
  }
}

}  // namespace
}  // namespace sightline::kernels
