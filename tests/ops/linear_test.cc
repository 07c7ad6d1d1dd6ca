#include "sightline/ops/linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/error_rule.h"
#include "ops/linear_case.h"

namespace sightline {
namespace {

using test::expect_rows_keep_their_bits;
using test::Layer;
using test::normals;
using test::run;
using test::same_bits;

constexpr std::int64_t kDims[] = {1, 3, 31, 32, 33, 257, 600};

// Over a whole call: one number alone may be near or far by luck, in the plain method too.
TEST(LinearTest, AgreesWithFloat64UnderTheErrorRuleForEveryShapeAndInstructionSet) {
  for (const std::int64_t out_dim : kDims) {
    for (const std::int64_t in_dim : kDims) {
      const Layer layer{out_dim, in_dim};
      const std::int64_t num_rows = 14 + 200 / out_dim;
      const auto x = normals(num_rows * in_dim, 9);
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
        const auto y = run(layer.pack(), layer.bias, x.data(), num_rows, {2, table});
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
      expect_rows_keep_their_bits(layer.pack(), layer.bias, 209, {1, 2, 5, 7, 12, 13, 64, 100}, *table);
    }
  }
}

TEST(LinearTest, RowKeepsItsBitsBeyondTheRowsThatAreCopiedAtOnce) {
  const Layer layer{3, 2};
  const PackedLinear packed = layer.pack();
  const auto x = normals(1000 * 2, 9);
  const auto all = run(packed, {}, x.data(), 1000, {.num_threads = 3});
  for (const std::int64_t row : {0, 767, 768, 769, 999}) {
    EXPECT_TRUE(same_bits(run(packed, {}, x.data() + row * 2, 1).data(), all.data() + row * 3, 3)) << row;
  }
}

TEST(LinearTest, BitsDoNotDependOnRowStrides) {
  const Layer layer{40, 300};
  const PackedLinear packed = layer.pack();
  const std::int64_t num_rows = 20;
  const auto dense = normals(num_rows * 300, 9);
  std::vector<float> wide(static_cast<std::size_t>(num_rows * 512),
                          std::numeric_limits<float>::signaling_NaN());
  for (std::int64_t i = 0; i < num_rows; ++i) {
    std::copy_n(dense.begin() + i * 300, 300, wide.begin() + i * 512);
  }
  const auto a = run(packed, {}, dense.data(), num_rows);
  const auto b = run(packed, {}, wide.data(), num_rows, {.x_stride = 512});
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
  auto x = normals(num_rows * 300, 9);
  const auto clean = run(layer.pack(), layer.bias, x.data(), num_rows);
  x[13 * 300 + 299] = std::numeric_limits<float>::quiet_NaN();
  const auto y = run(layer.pack(), layer.bias, x.data(), num_rows);
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
  const auto y = run(layer.pack(), layer.bias, x.data(), 3);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t n = 0; n < 70; ++n) EXPECT_EQ(std::isnan(y[i * 70 + n]), n == 65);
  }
}

TEST(LinearTest, NoRowsIsNothingToDo) { EXPECT_TRUE(run(Layer{5, 3}.pack(), {}, nullptr, 0).empty()); }

}  // namespace
}  // namespace sightline
