// Linear layers in quantised weights, held against a plain simulation of the same quantisation (to the bit),
// against float64, and against themselves for other numbers of rows and threads.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/linear_case.h"
#include "ops/quant_layer.h"

namespace sightline {
namespace {

using test::expect_rows_keep_their_bits;
using test::name_of;
using test::normals;
using test::QuantLayer;
using test::run;

struct PlainBlock {
  int q[32];
  float d, d_sum;
};

// The definition, one number at a time.
std::vector<PlainBlock> quantise(const float* x, std::int64_t n) {
  std::vector<PlainBlock> out(static_cast<std::size_t>(n / 32));
  for (PlainBlock& block : out) {
    float largest = 0.0F;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
      block.q[i] = largest >= 0x1p-100F ? static_cast<int>(std::nearbyint(x[i] * (127.0F / largest))) : 0;
      sum += block.q[i];
    }
    block.d = largest >= 0x1p-100F ? largest / 127.0F : 0.0F;
    block.d_sum = block.d * static_cast<float>(sum);
    x += 32;
  }
  return out;
}

float multiply_add(float a, float b, float c, bool fused) { return fused ? std::fma(a, b, c) : a * b + c; }

// The chain of one output: blocks of 32 ascending, in them stretches, then the minimum.
float plain_output(const QuantLayer& layer, std::int64_t n, const std::vector<PlainBlock>& x, bool fused) {
  const QuantTraits traits = quant_traits(layer.kind);
  float y = 0.0F;
  for (std::size_t b = 0; b < x.size(); ++b) {
    const auto begin = static_cast<int>(b * 32 % static_cast<std::size_t>(traits.block_values));
    const QuantBlock& block = layer.row(n)[b * 32 / static_cast<std::size_t>(traits.block_values)];
    const int step = std::min(32, traits.stretch_values);
    for (int i = 0; i < 32; i += step) {
      int dot = 0;
      for (int j = i; j < i + step; ++j) dot += (block.q[begin + j] - traits.zero) * x[b].q[j];
      const float scale = quant_scale(traits, block, (begin + i) / traits.stretch_values);
      y = multiply_add(static_cast<float>(dot), scale * x[b].d, y, fused);
    }
    if (traits.has_min) {
      y = multiply_add(quant_min(traits, block, begin / traits.stretch_values), x[b].d_sum, y, fused);
    }
  }
  return y + layer.bias[static_cast<std::size_t>(n)];
}

// Inputs of the size of one block, of an odd number of blocks, and over several stretches of 256.
std::vector<std::int64_t> in_dims(QuantKind kind) {
  if (quant_traits(kind).block_values == 256) return {256, 768};
  return {32, 96, 576};
}

TEST(LinearQuantTest, EqualsThePlainSimulationToTheBitForEveryKindAndInstructionSet) {
  for (const QuantKind kind : kQuantKinds) {
    for (const std::int64_t in_dim : in_dims(kind)) {
      const QuantLayer layer(kind, 37, in_dim);
      const PackedLinear packed = layer.pack();
      for (const std::int64_t num_rows : {1, 2, 3, 5, 11, 100}) {
        auto x = normals(num_rows * in_dim, 9);
        std::fill_n(x.begin(), 32, 0.0F);  // a block that has no scale
        std::vector<std::vector<PlainBlock>> rows;
        for (std::int64_t i = 0; i < num_rows; ++i) rows.push_back(quantise(x.data() + i * in_dim, in_dim));
        for (const kernels::KernelTable* table : kernels::available_tables()) {
          const auto y = run(packed, layer.bias, x.data(), num_rows, {2, table});
          for (std::int64_t i = 0; i < num_rows; ++i) {
            for (std::int64_t n = 0; n < 37; ++n) {
              ASSERT_EQ(y[static_cast<std::size_t>(i * 37 + n)],
                        plain_output(layer, n, rows[static_cast<std::size_t>(i)], table->fused_multiply_add))
                  << name_of(kind) << " " << table->name << " in_dim " << in_dim << " rows " << num_rows
                  << " row " << i << " output " << n;
            }
          }
        }
      }
    }
  }
}

// What the quantisation of x costs at most: half a step for each of its numbers.
TEST(LinearQuantTest, LiesWithinHalfAStepOfEveryInputOfTheProductInFloat64) {
  for (const QuantKind kind : kQuantKinds) {
    const std::int64_t in_dim = 768;
    const QuantLayer layer(kind, 33, in_dim);
    const PackedLinear packed = layer.pack();
    const auto x = normals(9 * in_dim, 9);
    const auto y = run(packed, {}, x.data(), 9);
    for (std::int64_t n = 0; n < 33; ++n) {
      const auto w = layer.values(n);
      for (std::int64_t i = 0; i < 9; ++i) {
        double exact = 0.0, bound = 0.0, size = 0.0;
        for (std::int64_t k = 0; k < in_dim; ++k) {
          const float* const block = x.data() + i * in_dim + k / 32 * 32;
          float largest = 0.0F;
          for (int j = 0; j < 32; ++j) largest = std::max(largest, std::fabs(block[j]));
          const double value = w[static_cast<std::size_t>(k)];
          exact += value * x[static_cast<std::size_t>(i * in_dim + k)];
          bound += std::abs(value) * largest / 254;
          size += std::abs(value) * largest;
        }
        const double error = std::abs(y[static_cast<std::size_t>(i * 33 + n)] - exact);
        // The f32 chain: at most 100 roundings of 2^-24, 6e-6 of a sum of that size.
        EXPECT_LE(error, bound + 1e-5 * size) << name_of(kind);
      }
    }
  }
}

TEST(LinearQuantTest, RowKeepsItsBitsForAnyNumberOfRowsAndThreadsOnEveryInstructionSet) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const QuantKind kind : kQuantKinds) {
      SCOPED_TRACE(name_of(kind));
      const std::int64_t in_dim = quant_traits(kind).block_values * 9 / (kind >= QuantKind::kQ4_K ? 3 : 1);
      const QuantLayer layer(kind, 70, in_dim);
      expect_rows_keep_their_bits(layer.pack(), layer.bias, 113, {1, 3, 4, 7, 16, 64}, *table);
    }
  }
}

TEST(LinearQuantTest, ANumberThatIsNotFiniteGivesNanInItsOwnRowAndNoOther) {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const QuantKind kind : {QuantKind::kQ8_0, QuantKind::kQ4_1}) {
    const QuantLayer layer(kind, 40, 96);
    const PackedLinear packed = layer.pack();
    for (const kernels::KernelTable* table : kernels::available_tables()) {
      for (const float value : bad) {
        auto x = normals(6 * 96, 9);
        const auto clean = run(packed, {}, x.data(), 6, {1, table});
        x[2 * 96 + 70] = value;
        const auto y = run(packed, {}, x.data(), 6, {1, table});
        for (std::size_t i = 0; i < 6; ++i) {
          for (std::size_t n = 0; n < 40; ++n) {
            if (i == 2) {
              EXPECT_TRUE(std::isnan(y[i * 40 + n])) << table->name << " " << value;
            } else {
              EXPECT_EQ(y[i * 40 + n], clean[i * 40 + n]);
            }
          }
        }
      }
    }
  }
}

TEST(LinearQuantTest, ActivationsTooSmallForAScaleCountAsZero) {
  const QuantLayer layer(QuantKind::kQ8_0, 32, 64);
  std::vector<float> x(64, std::numeric_limits<float>::denorm_min());
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const float y : run(layer.pack(), {}, x.data(), 1, {1, table})) EXPECT_EQ(y, 0.0F) << table->name;
  }
}

}  // namespace
}  // namespace sightline
