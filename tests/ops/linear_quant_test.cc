// Linear layers in quantised and bf16 weights, held against a plain simulation of the same quantisation (to
// the bit), against float64, and against themselves for other numbers of rows and threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/error_rule.h"
#include "sightline/base/rng.h"
#include "sightline/ops/embedding.h"
#include "sightline/ops/linear.h"

namespace sightline {
namespace {

std::vector<float> normals(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(rng.next_normal());
  return out;
}

const char* name_of(QuantKind kind) {
  constexpr const char* kNames[] = {"Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"};
  return kNames[static_cast<int>(kind)];
}

// A matrix of random blocks.
struct QuantLayer {
  QuantKind kind;
  std::int64_t out_dim, in_dim;
  std::vector<QuantBlock> blocks{};
  std::vector<float> bias{};

  QuantLayer(QuantKind kind_in, std::int64_t out_dim_in, std::int64_t in_dim_in, std::uint64_t seed = 5)
      : kind(kind_in), out_dim(out_dim_in), in_dim(in_dim_in) {
    const QuantTraits traits = quant_traits(kind);
    Rng rng(seed);
    const auto below = [&](int n) { return static_cast<int>(rng.next_u64() % static_cast<unsigned>(n)); };
    blocks.resize(static_cast<std::size_t>(out_dim * blocks_per_row()));
    for (QuantBlock& block : blocks) {
      std::memset(static_cast<void*>(&block), 0, sizeof(block));
      block.d = to_f16(static_cast<float>(rng.next_normal()) * 0.02F);
      if (traits.has_min) block.m = to_f16(static_cast<float>(rng.next_normal()) * 0.02F);
      for (int i = 0; i < traits.block_values; ++i) {
        block.q[i] = static_cast<std::uint8_t>(below(1 << traits.bits));
      }
      if (!traits.has_scales) continue;
      for (int s = 0; s < traits.block_values / traits.stretch_values; ++s) {
        block.scale[s] = static_cast<std::int8_t>(kind == QuantKind::kQ6_K ? below(255) - 127 : below(64));
        if (traits.has_min) block.min[s] = static_cast<std::uint8_t>(below(64));
      }
    }
    bias = normals(static_cast<std::size_t>(out_dim), 8);
  }
  std::int64_t blocks_per_row() const { return in_dim / quant_traits(kind).block_values; }
  const QuantBlock* row(std::int64_t n) const { return blocks.data() + n * blocks_per_row(); }
  std::vector<float> values(std::int64_t n) const {
    std::vector<float> out(static_cast<std::size_t>(in_dim));
    const int step = quant_traits(kind).block_values;
    for (std::int64_t b = 0; b < blocks_per_row(); ++b) {
      quant_values(kind, row(n)[b], out.data() + b * step);
    }
    return out;
  }
  PackedLinear pack() const {
    auto packed = PackedLinear::pack_quantised(
        kind, out_dim, in_dim, [&](std::int64_t begin, std::int64_t end, std::span<QuantBlock> out) {
          EXPECT_EQ(std::ssize(out), (end - begin) * blocks_per_row());
          std::copy(row(begin), row(end), out.begin());
          return Result<void>();
        });
    EXPECT_TRUE(packed) << packed.error().message;
    return std::move(*packed);
  }
};

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

std::vector<float> run(const PackedLinear& packed, const std::vector<float>& bias, const float* x,
                       std::int64_t num_rows, int num_threads = 1,
                       const kernels::KernelTable& table = kernels::active_table()) {
  ThreadPool pool(num_threads);
  std::vector<float> y(static_cast<std::size_t>(num_rows * packed.out_dim()),
                       std::numeric_limits<float>::signaling_NaN());
  linear_forward(packed, {x, {num_rows, packed.in_dim()}, {packed.in_dim(), 1}}, bias,
                 dense_view(y.data(), {num_rows, packed.out_dim()}), pool, table);
  return y;
}

bool same_bits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
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
        auto x = normals(static_cast<std::size_t>(num_rows * in_dim), 9);
        std::fill_n(x.begin(), 32, 0.0F);  // a block that has no scale
        std::vector<std::vector<PlainBlock>> rows;
        for (std::int64_t i = 0; i < num_rows; ++i) rows.push_back(quantise(x.data() + i * in_dim, in_dim));
        for (const kernels::KernelTable* table : kernels::available_tables()) {
          const auto y = run(packed, layer.bias, x.data(), num_rows, 2, *table);
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
    const auto x = normals(static_cast<std::size_t>(9 * in_dim), 9);
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
        EXPECT_LE(error, bound + 1e-5 * size) << name_of(kind);
      }
    }
  }
}

TEST(LinearQuantTest, RowKeepsItsBitsForAnyNumberOfRowsAndThreadsOnEveryInstructionSet) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const QuantKind kind : kQuantKinds) {
      const std::int64_t in_dim = quant_traits(kind).block_values * 9 / (kind >= QuantKind::kQ4_K ? 3 : 1);
      const QuantLayer layer(kind, 70, in_dim);
      const PackedLinear packed = layer.pack();
      const std::int64_t num_rows = 113;
      const auto x = normals(static_cast<std::size_t>(num_rows * in_dim), 9);
      const auto all = run(packed, layer.bias, x.data(), num_rows, 1, *table);
      for (const int num_threads : {2, 3, 5}) {
        const auto y = run(packed, layer.bias, x.data(), num_rows, num_threads, *table);
        EXPECT_TRUE(same_bits(y.data(), all.data(), std::ssize(all))) << num_threads << " threads";
      }
      for (const std::int64_t group : {1, 3, 4, 7, 16, 64}) {
        for (std::int64_t begin = 0; begin < num_rows; begin += group) {
          const std::int64_t rows = std::min(group, num_rows - begin);
          const auto y = run(packed, layer.bias, x.data() + begin * in_dim, rows, 2, *table);
          ASSERT_TRUE(same_bits(y.data(), all.data() + begin * 70, rows * 70))
              << table->name << " " << name_of(kind) << " row " << begin << " in groups of " << group;
        }
      }
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
        const auto clean = run(packed, {}, x.data(), 6, 1, *table);
        x[2 * 96 + 70] = value;
        const auto y = run(packed, {}, x.data(), 6, 1, *table);
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
    for (const float y : run(layer.pack(), {}, x.data(), 1, 1, *table)) EXPECT_EQ(y, 0.0F) << table->name;
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

TEST(EmbeddingTest, LooksUpRowsOfAQuantisedTable) {
  const QuantLayer layer(QuantKind::kQ6_K, 67, 256);
  const std::vector<std::int32_t> ids = {66, 0, 31};
  ThreadPool pool(2);
  std::vector<float> y(3 * 256);
  embedding_forward(layer.pack(), ids, 1.0F, dense_view(y.data(), {3, 256}), pool);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(y.data() + i * 256, layer.values(ids[i]).data(), 256));
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

PackedLinear pack_rows(const std::vector<float>& w, std::int64_t out_dim, std::int64_t in_dim, bool bf16) {
  const auto read = [&](std::int64_t begin, std::int64_t end, std::span<float> rows) {
    std::copy(w.begin() + begin * in_dim, w.begin() + end * in_dim, rows.begin());
    return Result<void>();
  };
  auto packed =
      bf16 ? PackedLinear::pack_bf16(out_dim, in_dim, read) : PackedLinear::pack(out_dim, in_dim, read);
  EXPECT_TRUE(packed) << packed.error().message;
  return std::move(*packed);
}

TEST(PackedLinearTest, StackedPartsOfSeveralKindsGiveWhatEachGivesAlone) {
  const std::int64_t in_dim = 512;
  const QuantLayer first(QuantKind::kQ4_K, 40, in_dim), second(QuantKind::kQ6_K, 32, in_dim);
  const auto w = normals(5 * 512, 7);
  std::vector<PackedLinear> parts;
  parts.push_back(first.pack());
  parts.push_back(second.pack());
  parts.push_back(pack_rows(w, 5, in_dim, false));
  const PackedLinear alone[] = {first.pack(), second.pack(), pack_rows(w, 5, in_dim, false)};
  auto all = PackedLinear::stack(std::move(parts));
  ASSERT_TRUE(all);
  EXPECT_EQ(all->out_dim(), 77);
  EXPECT_EQ(all->in_dim(), in_dim);
  const auto x = normals(14 * 512, 9);
  const auto bias = normals(77, 3);
  const auto y = run(*all, bias, x.data(), 14, 2);
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

// x as the product reads it: rounded to bf16 where the CPU multiplies bf16.
float bf16_input(float x, const kernels::KernelTable& table) {
  return table.bf16_dot ? to_f32(to_bf16(x)) : x;
}

TEST(LinearBf16Test, AgreesWithFloat64OfTheRoundedNumbersUnderTheErrorRule) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const std::int64_t in_dim : {1, 2, 31, 257, 600}) {
      const std::int64_t out_dim = 70;
      const std::int64_t num_rows = 30;
      const auto w = normals(static_cast<std::size_t>(out_dim * in_dim), 7);
      const auto x = normals(static_cast<std::size_t>(num_rows * in_dim), 9);
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
      const auto y = run(pack_rows(w, out_dim, in_dim, true), {}, x.data(), num_rows, 2, *table);
      EXPECT_TRUE(test::within_error_rule(y, plain, ref)) << table->name << " in_dim " << in_dim;
    }
  }
}

TEST(LinearBf16Test, RowKeepsItsBitsForAnyNumberOfRowsAndThreadsOnEveryInstructionSet) {
  for (const kernels::KernelTable* table : kernels::available_tables()) {
    for (const std::int64_t in_dim : {3, 257, 600}) {
      const PackedLinear packed =
          pack_rows(normals(static_cast<std::size_t>(70 * in_dim), 7), 70, in_dim, true);
      const std::int64_t num_rows = 113;
      const auto x = normals(static_cast<std::size_t>(num_rows * in_dim), 9);
      const auto all = run(packed, {}, x.data(), num_rows, 1, *table);
      for (const int num_threads : {2, 3, 5}) {
        const auto y = run(packed, {}, x.data(), num_rows, num_threads, *table);
        EXPECT_TRUE(same_bits(y.data(), all.data(), std::ssize(all))) << num_threads << " threads";
      }
      for (const std::int64_t group : {1, 3, 4, 7, 16, 64}) {
        for (std::int64_t begin = 0; begin < num_rows; begin += group) {
          const std::int64_t rows = std::min(group, num_rows - begin);
          const auto y = run(packed, {}, x.data() + begin * in_dim, rows, 2, *table);
          ASSERT_TRUE(same_bits(y.data(), all.data() + begin * 70, rows * 70))
              << table->name << " row " << begin << " in groups of " << group << ", in_dim " << in_dim;
        }
      }
    }
  }
}

TEST(LinearBf16Test, TablesThatShareArithmeticShareBits) {
  const PackedLinear packed = pack_rows(normals(70 * 300, 7), 70, 300, true);
  const auto x = normals(5 * 300, 9);
  for (const kernels::KernelTable* a : kernels::available_tables()) {
    for (const kernels::KernelTable* b : kernels::available_tables()) {
      if (a->bf16_dot != b->bf16_dot || a->fused_multiply_add != b->fused_multiply_add) continue;
      EXPECT_EQ(run(packed, {}, x.data(), 5, 1, *a), run(packed, {}, x.data(), 5, 1, *b));
    }
  }
}

}  // namespace
}  // namespace sightline
