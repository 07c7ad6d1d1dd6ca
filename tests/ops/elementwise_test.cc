#include "sightline/ops/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/error_rule.h"
#include "support/normals.h"

namespace sightline {
namespace {

using test::normals;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kDims[] = {1, 3, 7, 8, 31, 33, 257};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

std::vector<float> rms_norm(const std::vector<float>& x, const std::vector<float>& weight, float epsilon,
                            int num_threads = 1) {
  ThreadPool pool(num_threads);
  std::vector<float> y(x.size());
  const std::int64_t dim = std::ssize(weight);
  const std::int64_t rows = std::ssize(x) / dim;
  rms_norm_forward(dense_view(x.data(), {rows, dim}), weight, epsilon, dense_view(y.data(), {rows, dim}),
                   pool);
  return y;
}

std::vector<float> layer_norm(const std::vector<float>& x, const std::vector<float>& weight,
                              const std::vector<float>& bias, float epsilon, int num_threads = 1) {
  ThreadPool pool(num_threads);
  std::vector<float> y(x.size());
  const std::int64_t dim = std::ssize(weight);
  const std::int64_t rows = std::ssize(x) / dim;
  layer_norm_forward(dense_view(x.data(), {rows, dim}), weight, bias, epsilon,
                     dense_view(y.data(), {rows, dim}), pool);
  return y;
}

TEST(RmsNormTest, AgreesWithFloat64UnderTheErrorRule) {
  for (const std::int64_t dim : kDims) {
    const auto x = normals(dim, 1, 3.0);
    const auto weight = normals(dim, 2);
    double exact = 0.0;
    float plain_sum = 0.0F;
    for (const float v : x) {
      exact += static_cast<double>(v) * v;
      plain_sum += v * v;
    }
    std::vector<double> ref;
    std::vector<float> plain;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double epsilon = static_cast<double>(1e-5F);
      ref.push_back(static_cast<double>(weight[i]) * x[i] /
                    std::sqrt(exact / static_cast<double>(dim) + epsilon));
      plain.push_back(weight[i] * (x[i] * (1.0F / std::sqrt(plain_sum / static_cast<float>(dim) + 1e-5F))));
    }
    EXPECT_TRUE(test::within_error_rule(rms_norm(x, weight, 1e-5F), plain, ref)) << dim;
  }
}

TEST(RmsNormTest, EpsilonStandsInsideTheRoot) {
  const auto y = rms_norm({3e-3F}, {1.0F}, 1e-5F);
  EXPECT_FLOAT_EQ(y[0], static_cast<float>(3e-3 / std::sqrt(9e-6 + 1e-5)));
}

TEST(RmsNormTest, ZeroRowStaysZeroAndNanStaysInItsRow) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto y = rms_norm({0, 0, 0, 1, nan, 2, 1, 2, 3}, {1, 1, 1}, 1e-5F);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i)], 0.0F);
  for (int i = 3; i < 6; ++i) EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(i)]));
  EXPECT_TRUE(same_bits(std::span(y).subspan(6), rms_norm({1, 2, 3}, {1, 1, 1}, 1e-5F)));
}

TEST(RmsNormTest, LargeComponentsDoNotOverflowTheSum) {
  const auto y = rms_norm({1e25F, 1e25F}, {1.0F, 1.0F}, 1e-5F);
  EXPECT_FLOAT_EQ(y[0], 1.0F);
}

TEST(LayerNormTest, AgreesWithFloat64UnderTheErrorRuleAlsoFarFromZero) {
  for (const double offset : {0.0, 100.0}) {
    for (const std::int64_t dim : kDims) {
      auto x = normals(dim, 1);
      for (float& v : x) v += static_cast<float>(offset);
      const auto weight = normals(dim, 2);
      const auto bias = normals(dim, 3);
      double mean = 0.0;
      float plain_mean = 0.0F;
      for (const float v : x) {
        mean += v;
        plain_mean += v;
      }
      mean /= static_cast<double>(dim);
      plain_mean /= static_cast<float>(dim);
      double var = 0.0;
      float plain_var = 0.0F;
      for (const float v : x) {
        var += (v - mean) * (v - mean);
        plain_var += (v - plain_mean) * (v - plain_mean);
      }
      const double root = std::sqrt(var / static_cast<double>(dim) + static_cast<double>(1e-5F));
      const float plain_root = std::sqrt(plain_var / static_cast<float>(dim) + 1e-5F);
      std::vector<double> ref;
      std::vector<float> plain;
      for (std::size_t i = 0; i < x.size(); ++i) {
        ref.push_back((x[i] - mean) / root * weight[i] + bias[i]);
        plain.push_back((x[i] - plain_mean) / plain_root * weight[i] + bias[i]);
      }
      EXPECT_TRUE(test::within_error_rule(layer_norm(x, weight, bias, 1e-5F), plain, ref)) << dim;
    }
  }
}

TEST(LayerNormTest, VarianceIsBiasedAndAnEmptyBiasIsZero) {
  const auto y = layer_norm({1, 3}, {2, 2}, {}, 0.0F);  // mean 2, variance 1 (2 if divided by n - 1)
  EXPECT_EQ(y, (std::vector<float>{-2, 2}));
}

TEST(NormTest, RowKeepsItsBitsForAnyNumberOfRowsAndThreads) {
  const std::int64_t dim = 37;
  const auto x = normals(50 * dim, 1);
  const auto weight = normals(dim, 2);
  const auto rms = rms_norm(x, weight, 1e-5F);
  const auto layer = layer_norm(x, weight, weight, 1e-5F);
  for (const int num_threads : {2, 3, 5}) {
    EXPECT_TRUE(same_bits(rms_norm(x, weight, 1e-5F, num_threads), rms));
    EXPECT_TRUE(same_bits(layer_norm(x, weight, weight, 1e-5F, num_threads), layer));
  }
  for (std::int64_t i = 0; i < 50; ++i) {
    const std::vector<float> row(x.begin() + i * dim, x.begin() + (i + 1) * dim);
    EXPECT_TRUE(same_bits(rms_norm(row, weight, 1e-5F),
                          std::span(rms).subspan(static_cast<std::size_t>(i * dim), 37)));
    EXPECT_TRUE(same_bits(layer_norm(row, weight, weight, 1e-5F),
                          std::span(layer).subspan(static_cast<std::size_t>(i * dim), 37)));
  }
}

TEST(NormTest, MayWriteOverItsInput) {
  ThreadPool pool(2);
  const auto weight = normals(33, 2);
  const auto x = normals(20 * 33, 1);
  auto y = x;
  rms_norm_forward(dense_view<const float>(y.data(), {20, 33}), weight, 1e-5F, dense_view(y.data(), {20, 33}),
                   pool);
  EXPECT_TRUE(same_bits(y, rms_norm(x, weight, 1e-5F)));
  y = x;
  layer_norm_forward(dense_view<const float>(y.data(), {20, 33}), weight, {}, 1e-5F,
                     dense_view(y.data(), {20, 33}), pool);
  EXPECT_TRUE(same_bits(y, layer_norm(x, weight, {}, 1e-5F)));
}

constexpr ActivationKind kKinds[] = {ActivationKind::kSilu, ActivationKind::kGeluTanh,
                                     ActivationKind::kGeluErf, ActivationKind::kRelu};

template <typename T>
T plain_activation(ActivationKind kind, T x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (T(1) + std::exp(-x));
    case ActivationKind::kGeluTanh:
      return T(0.5) * x * (T(1) + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
    case ActivationKind::kGeluErf:
      return T(0.5) * x * (T(1) + std::erf(x / std::sqrt(T(2))));
    case ActivationKind::kRelu:
      return x > T(0) ? x : T(0);
  }
  return x;
}

std::vector<float> activate_row(ActivationKind kind, const std::vector<float>& x,
                                const kernels::KernelTable& table = kernels::active_table()) {
  ThreadPool pool(1);
  std::vector<float> y(x.size());
  const std::int64_t n = std::ssize(x);
  activation_forward(kind, dense_view(x.data(), {1, n}), dense_view(y.data(), {1, n}), pool, table);
  return y;
}

TEST(ActivationTest, AgreesWithFloat64UnderTheErrorRuleInEveryRange) {
  for (const ActivationKind kind : kKinds) {
    for (const double scale : {1e-4, 1.0, 10.0, 40.0, 200.0}) {
      const auto x = normals(1000, 5, scale);
      std::vector<double> ref;
      std::vector<float> plain;
      for (const float v : x) {
        ref.push_back(plain_activation<double>(kind, v));
        plain.push_back(plain_activation<float>(kind, v));
      }
      for (const kernels::KernelTable* table : kernels::available_tables()) {
        EXPECT_TRUE(test::within_error_rule(activate_row(kind, x, *table), plain, ref))
            << table->name << " kind " << static_cast<int>(kind) << " scale " << scale;
      }
    }
  }
}

// The error rule is absolute over a row; this is the relative error of each number, where it is normal.
TEST(ActivationTest, SiluIsWithinFourUnitsInTheLastPlace) {
  std::vector<float> x;
  for (float v = -80.0F; v < 80.0F; v += 0.01037F) x.push_back(v);
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    const auto y = activate_row(ActivationKind::kSilu, x, *table);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double ref = plain_activation<double>(ActivationKind::kSilu, x[i]);
      EXPECT_LE(std::abs(y[i] - ref), 4 * std::abs(ref) * 0x1p-23) << table->name << " " << x[i];
    }
  }
}

TEST(ActivationTest, ExtremesAndNan) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const ActivationKind kind : kKinds) {
      const auto y = activate_row(
          kind,
          {0.0F, -0.0F, 3e38F, kInfinity, -3e38F, -1e4F, std::numeric_limits<float>::quiet_NaN(), 1e-42F},
          *table);
      EXPECT_EQ(y[0], 0.0F);
      EXPECT_EQ(y[1], 0.0F);
      EXPECT_EQ(y[2], 3e38F);
      EXPECT_EQ(y[3], kInfinity);
      EXPECT_EQ(y[4], 0.0F);
      EXPECT_EQ(y[5], 0.0F);
      EXPECT_TRUE(std::isnan(y[6]));
      EXPECT_LE(std::abs(y[7]), 1e-42F);  // subnormal in, subnormal out
      if (kind == ActivationKind::kRelu) {
        EXPECT_EQ(y[7], 1e-42F);
      }
    }
  }
}

TEST(ActivationTest, NumberKeepsItsBitsWhereverItStands) {
  const auto x = normals(257, 5, 4.0);
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const ActivationKind kind : kKinds) {
      const auto whole = activate_row(kind, x, *table);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_TRUE(same_bits(activate_row(kind, {x[i]}, *table), std::span(whole).subspan(i, 1)));
      }
    }
  }
}

TEST(ActivationTest, GatedIsActivationTimesUpAlsoInPlaceAndForAnyThreads) {
  const std::int64_t rows = 19;
  const std::int64_t dim = 33;
  const auto gate = normals(rows * dim, 5);
  const auto up = normals(rows * dim, 6);
  for (const ActivationKind kind : kKinds) {
    std::vector<float> expected = activate_row(kind, gate);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] *= up[i];
    for (const int num_threads : {1, 2, 3, 5}) {
      ThreadPool pool(num_threads);
      auto in_gate = gate;
      gated_activation_forward(kind, dense_view<const float>(in_gate.data(), {rows, dim}),
                               dense_view(up.data(), {rows, dim}), dense_view(in_gate.data(), {rows, dim}),
                               pool);
      EXPECT_TRUE(same_bits(in_gate, expected));
      auto in_up = up;
      gated_activation_forward(kind, dense_view(gate.data(), {rows, dim}),
                               dense_view<const float>(in_up.data(), {rows, dim}),
                               dense_view(in_up.data(), {rows, dim}), pool);
      EXPECT_TRUE(same_bits(in_up, expected));
    }
  }
}

TEST(AddScaledTest, AddsWithRowStrides) {
  ThreadPool pool(3);
  std::vector<float> x = {1, 2, 9, 3, 4, 9};
  const std::vector<float> y = {10, 20, 30, 40};
  add_scaled({x.data(), {2, 2}, {3, 1}}, dense_view(y.data(), {2, 2}), 0.5F, pool);
  EXPECT_EQ(x, (std::vector<float>{6, 12, 9, 18, 24, 9}));
}

}  // namespace
}  // namespace sightline
