#include "sightline/ops/linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/error_rule.h"
#include "sightline/base/rng.h"
#include "sightline/ops/embedding.h"

namespace sightline {
namespace {

std::vector<float> normals(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(rng.next_normal());
  return out;
}

struct Layer {
  std::int64_t out_dim;
  std::int64_t in_dim;
  std::vector<float> w = normals(static_cast<std::size_t>(out_dim * in_dim), 7);
  std::vector<float> bias = normals(static_cast<std::size_t>(out_dim), 8);

  PackedLinear pack() const {
    auto packed =
        PackedLinear::pack(out_dim, in_dim, [&](std::int64_t begin, std::int64_t end, std::span<float> rows) {
          std::copy(w.begin() + begin * in_dim, w.begin() + end * in_dim, rows.begin());
          return Result<void>();
        });
    EXPECT_TRUE(packed) << packed.error().message;
    return std::move(*packed);
  }
};

std::vector<float> run(const PackedLinear& packed, const std::vector<float>& bias, const float* x,
                       std::int64_t num_rows, std::int64_t x_stride, int num_threads = 1,
                       const kernels::KernelTable& table = kernels::active_table()) {
  ThreadPool pool(num_threads);
  std::vector<float> y(static_cast<std::size_t>(num_rows * packed.out_dim()),
                       std::numeric_limits<float>::signaling_NaN());
  linear_forward(packed, {x, {num_rows, packed.in_dim()}, {x_stride, 1}}, bias,
                 dense_view(y.data(), {num_rows, packed.out_dim()}), pool, table);
  return y;
}

bool same_bits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

constexpr std::int64_t kDims[] = {1, 3, 31, 32, 33, 257, 600};

// Over a whole call: one number alone may be near or far by luck, in the plain method too.
TEST(LinearTest, AgreesWithFloat64UnderTheErrorRuleForEveryShapeAndInstructionSet) {
  for (const std::int64_t out_dim : kDims) {
    for (const std::int64_t in_dim : kDims) {
      const Layer layer{out_dim, in_dim};
      const std::int64_t num_rows = 14 + 200 / out_dim;
      const auto x = normals(static_cast<std::size_t>(num_rows * in_dim), 9);
      std::vector<double> ref;
      std::vector<float> plain;
      for (std::int64_t i = 0; i < num_rows; ++i) {
        for (std::int64_t n = 0; n < out_dim; ++n) {
          double exact = 0.0;
          float sum = 0.0F;
          for (std::int64_t k = 0; k < in_dim; ++k) {
            const float a = x[static_cast<std::size_t>(i * in_dim + k)];
            const float b = layer.w[static_cast<std::size_t>(n * in_dim + k)];
            exact += static_cast<double>(a) * b;
            sum += a * b;
          }
          ref.push_back(exact + layer.bias[static_cast<std::size_t>(n)]);
          plain.push_back(sum + layer.bias[static_cast<std::size_t>(n)]);
        }
      }
      for (const kernels::KernelTable* table : kernels::available_tables()) {
        const auto y = run(layer.pack(), layer.bias, x.data(), num_rows, in_dim, 2, *table);
        EXPECT_TRUE(test::within_error_rule(y, plain, ref))
            << table->name << " " << out_dim << " x " << in_dim;
      }
    }
  }
}

TEST(LinearTest, RowKeepsItsBitsForAnyNumberOfRowsAndThreadsOnEveryInstructionSet) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const std::int64_t in_dim : {3, 257, 600}) {
      const Layer layer{97, in_dim};
      const PackedLinear packed = layer.pack();
      const std::int64_t num_rows = 209;
      const auto x = normals(static_cast<std::size_t>(num_rows * in_dim), 9);
      const auto all = run(packed, layer.bias, x.data(), num_rows, in_dim, 1, *table);
      for (const int num_threads : {2, 3, 5}) {
        const auto y = run(packed, layer.bias, x.data(), num_rows, in_dim, num_threads, *table);
        EXPECT_TRUE(same_bits(y.data(), all.data(), std::ssize(all))) << num_threads << " threads";
      }
      for (const std::int64_t group : {1, 2, 5, 7, 12, 13, 64, 100}) {
        for (std::int64_t begin = 0; begin < num_rows; begin += group) {
          const std::int64_t rows = std::min(group, num_rows - begin);
          const auto y = run(packed, layer.bias, x.data() + begin * in_dim, rows, in_dim, 2, *table);
          ASSERT_TRUE(same_bits(y.data(), all.data() + begin * 97, rows * 97))
              << table->name << " row " << begin << " in groups of " << group << ", in_dim " << in_dim;
        }
      }
    }
  }
}

TEST(LinearTest, RowKeepsItsBitsBeyondTheRowsThatAreCopiedAtOnce) {
  const Layer layer{3, 2};
  const PackedLinear packed = layer.pack();
  const auto x = normals(1000 * 2, 9);
  const auto all = run(packed, {}, x.data(), 1000, 2, 3);
  for (const std::int64_t row : {0, 767, 768, 769, 999}) {
    EXPECT_TRUE(same_bits(run(packed, {}, x.data() + row * 2, 1, 2).data(), all.data() + row * 3, 3)) << row;
  }
}

TEST(LinearTest, BitsDoNotDependOnRowStrides) {
  const Layer layer{40, 300};
  const PackedLinear packed = layer.pack();
  const std::int64_t num_rows = 20;
  const auto dense = normals(static_cast<std::size_t>(num_rows * 300), 9);
  std::vector<float> wide(static_cast<std::size_t>(num_rows * 512),
                          std::numeric_limits<float>::signaling_NaN());
  for (std::int64_t i = 0; i < num_rows; ++i) {
    std::copy_n(dense.begin() + i * 300, 300, wide.begin() + i * 512);
  }
  const auto a = run(packed, {}, dense.data(), num_rows, 300);
  const auto b = run(packed, {}, wide.data(), num_rows, 512);
  EXPECT_TRUE(same_bits(a.data(), b.data(), std::ssize(a)));
}

TEST(LinearTest, WritesOnlyItsOwnColumns) {
  const Layer layer{33, 5};
  const auto x = normals(10, 9);
  std::vector<float> y(2 * 40, 42.0F);
  ThreadPool pool(1);
  linear_forward(layer.pack(), {x.data(), {2, 5}, {5, 1}}, {}, {y.data(), {2, 33}, {40, 1}}, pool);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t n = 0; n < 40; ++n) EXPECT_EQ(y[i * 40 + n] == 42.0F, n >= 33) << i << ", " << n;
  }
}

TEST(LinearTest, NanReachesItsOwnRowAndNoOther) {
  const Layer layer{70, 300};
  const std::int64_t num_rows = 30;
  auto x = normals(static_cast<std::size_t>(num_rows * 300), 9);
  const auto clean = run(layer.pack(), layer.bias, x.data(), num_rows, 300);
  x[13 * 300 + 299] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run(layer.pack(), layer.bias, x.data(), num_rows, 300);
  for (std::size_t i = 0; i < 30; ++i) {
    for (std::size_t n = 0; n < 70; ++n) {
      if (i == 13) {
        EXPECT_TRUE(std::isnan(y[i * 70 + n]));
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(y[i * 70 + n]),
                  std::bit_cast<std::uint32_t>(clean[i * 70 + n]));
      }
    }
  }
}

TEST(LinearTest, NanWeightReachesItsOwnColumnAndNoOther) {
  Layer layer{70, 300};
  layer.w[65 * 300 + 7] = std::numeric_limits<float>::quiet_NaN();
  const auto x = normals(3 * 300, 9);
  const auto y = run(layer.pack(), layer.bias, x.data(), 3, 300);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t n = 0; n < 70; ++n) EXPECT_EQ(std::isnan(y[i * 70 + n]), n == 65);
  }
}

TEST(LinearTest, NoRowsIsNothingToDo) { EXPECT_TRUE(run(Layer{5, 3}.pack(), {}, nullptr, 0, 3).empty()); }

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

TEST(EmbeddingTest, LooksUpRowsOfThePackedTableAndScalesThem) {
  const Layer layer{67, 33};
  const std::vector<std::int32_t> ids = {66, 0, 31, 32, 0};
  ThreadPool pool(2);
  for (const float scale : {1.0F, 3.5F}) {
    std::vector<float> y(5 * 33);
    embedding_forward(layer.pack(), ids, scale, dense_view(y.data(), {5, 33}), pool);
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t k = 0; k < 33; ++k) {
        EXPECT_EQ(y[i * 33 + k], scale * layer.w[static_cast<std::size_t>(ids[i]) * 33 + k]);
      }
    }
  }
}

}  // namespace
}  // namespace sightline
