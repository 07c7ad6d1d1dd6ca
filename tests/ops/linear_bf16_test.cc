// Linear layers in bf16 weights, held against float64 of the rounded numbers, and against themselves for
// other numbers of rows and threads and on other instruction sets.
#include <gtest/gtest.h>

#include <vector>

#include "ops/error_rule.h"
#include "ops/linear_case.h"
#include "sightline/base/half.h"

namespace sightline {
namespace {

using test::expect_rows_keep_their_bits;
using test::normals;
using test::pack_rows;
using test::run;

// x as the product reads it: rounded to bf16 where the CPU multiplies bf16.
float bf16_input(float x, const kernels::KernelTable& table) {
  return table.bf16_dot ? to_f32(to_bf16(x)) : x;
}

TEST(LinearBf16Test, AgreesWithFloat64OfTheRoundedNumbersUnderTheErrorRule) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const std::int64_t in_dim : {1, 2, 31, 257, 600}) {
      const std::int64_t out_dim = 70;
      const std::int64_t num_rows = 30;
      const auto w = normals(out_dim * in_dim, 7);
      const auto x = normals(num_rows * in_dim, 9);
      std::vector<double> ref;
      std::vector<float> plain;
      for (std::int64_t i = 0; i < num_rows; ++i) {
        for (std::int64_t n = 0; n < out_dim; ++n) {
          double exact = 0.0;
          float sum = 0.0F;
          for (std::int64_t k = 0; k < in_dim; ++k) {
            const float a = bf16_input(x[static_cast<std::size_t>(i * in_dim + k)], *table);
            const float b = to_f32(to_bf16(w[static_cast<std::size_t>(n * in_dim + k)]));
            exact += static_cast<double>(a) * b;
            sum += a * b;
          }
          ref.push_back(exact);
          plain.push_back(sum);
        }
      }
      const auto y =
          run(pack_rows(w, out_dim, in_dim, WeightStorage::kBf16), {}, x.data(), num_rows, {2, table});
      EXPECT_TRUE(test::within_error_rule(y, plain, ref)) << table->name << " in_dim " << in_dim;
    }
  }
}

TEST(LinearBf16Test, RowKeepsItsBitsForAnyNumberOfRowsAndThreadsOnEveryInstructionSet) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const std::int64_t in_dim : {3, 257, 600}) {
      const PackedLinear packed = pack_rows(normals(70 * in_dim, 7), 70, in_dim, WeightStorage::kBf16);
      expect_rows_keep_their_bits(packed, {}, 113, {1, 3, 4, 7, 16, 64}, *table);
    }
  }
}

TEST(LinearBf16Test, TablesThatShareArithmeticShareBits) {
  const PackedLinear packed = pack_rows(normals(70 * 300, 7), 70, 300, WeightStorage::kBf16);
  const auto x = normals(5 * 300, 9);
  for (const kernels::KernelTable* a : kernels::available_tables()) {
    for (const kernels::KernelTable* b : kernels::available_tables()) {
      if (a->bf16_dot != b->bf16_dot || a->fused_multiply_add != b->fused_multiply_add) continue;
      EXPECT_EQ(run(packed, {}, x.data(), 5, {1, a}), run(packed, {}, x.data(), 5, {1, b}));
    }
  }
}

}  // namespace
}  // namespace sightline
