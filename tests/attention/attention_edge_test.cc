// Rows that see nothing, numbers that are not finite, and calls that are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "attention/batch.h"
#include "sightline/base/rng.h"

namespace sightline::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class AttentionEdgeTest : public ::testing::TestWithParam<const kernels::KernelTable*> {
 protected:
  [[nodiscard]] RunOptions options(int num_threads = 2) const { return {GetParam(), num_threads}; }
  [[nodiscard]] std::vector<Output> both(const Batch& batch) const {
    return {run_contiguous(batch, options()), run_paged(batch, {}, options())};
  }
};

TEST_P(AttentionEdgeTest, RowWithNoVisibleKeyIsZeroAndLseIsMinusInfinityOrItsSink) {
  for (const bool sinks : {false, true}) {
    for (const char* mask : {"none", "causal & !causal", "ahead(3) & !ahead(3)", "key_is(5)"}) {
      Batch batch;
      batch.spec = make_spec(4, 2, 24, 20, mask);
      if (sinks) batch.spec.score.sink_logits = {0.25, -1.5, 3.0, 100.0};
      add_sequence(batch, 19, 300, 1);
      add_sequence(batch, 1, 3000, 2);
      for (const Output& got : both(batch)) {
        for (const float x : got.out) ASSERT_TRUE(x == 0.0F && !std::signbit(x)) << mask;
        for (std::size_t i = 0; i < got.lse.size(); ++i) {
          const float expected = sinks ? static_cast<float>(batch.spec.score.sink_logits[i % 4]) : -kInf;
          ASSERT_EQ(got.lse[i], expected) << mask;
        }
        EXPECT_EQ(got.stats.pairs_visible, 0);
        EXPECT_EQ(got.stats.pairs_computed, 0);
      }
    }
  }
}

TEST_P(AttentionEdgeTest, SequenceWithoutKeysGivesZeros) {
  Batch batch;
  batch.spec = make_spec(2, 1, 8, 8, "all");
  add_sequence(batch, coords_range(0, 5), {}, 3);
  add_sequence(batch, 2, 7, 4);
  for (const Output& got : both(batch)) {
    for (std::int64_t i = 0; i < 5; ++i) {
      for (const float x : got.row(batch, i)) EXPECT_TRUE(x == 0.0F || x == -kInf);
    }
    EXPECT_TRUE(within_error_rule(batch, got));
  }
}

TEST_P(AttentionEdgeTest, QueriesBeforeEveryKeyAndAfterThemInOneCall) {
  Batch batch;  // more queries than keys: those before the first key see nothing
  batch.spec = make_spec(2, 2, 16, 16, "causal");
  add_sequence(batch, coords_range(0, 50), coords_range(30, 40), 5);
  for (const Output& got : both(batch)) {
    EXPECT_TRUE(within_error_rule(batch, got));
    EXPECT_EQ(got.lse[29 * 2], -kInf);
    EXPECT_NE(got.lse[30 * 2], -kInf);
  }
}

// Every key in turn holds something that is not finite; rows that do not see it keep their bits.
TEST_P(AttentionEdgeTest, NonFiniteKeysAndValuesChangeOnlyRowsThatSeeThem) {
  Batch clean;
  clean.spec = make_spec(4, 2, 24, 20, "causal & window(40)");
  add_sequence(clean, 60, 300, 6);
  const std::vector<Output> expected = both(clean);
  for (const float poison : {kNaN, kInf, -kInf}) {
    for (const bool in_keys : {true, false}) {
      for (const std::int64_t at : {0, 127, 128, 201, 230, 240, 255, 256, 257, 290, 299}) {
        Batch batch = clean;
        const int width = in_keys ? 24 : 20;
        auto& to = in_keys ? batch.k : batch.v;
        to[static_cast<std::size_t>(at * 2 * width + 3)] = poison;  // key head 0
        const std::vector<Output> got = both(batch);
        for (std::size_t kind = 0; kind < 2; ++kind) {
          for (std::int64_t i = 0; i < 60; ++i) {
            const std::int64_t pos = 240 + i;
            const bool sees = at <= pos && pos - at < 40;
            const auto row = got[kind].row(batch, i);
            if (!sees) {
              ASSERT_TRUE(same_bits(expected[kind].row(clean, i), row))
                  << at << " row " << i << " kind " << kind;
              continue;
            }
            // Heads 0 and 1 read key head 0. A key spoils every component, a value its own.
            for (std::size_t x = 0; x < 2 * 20; ++x) {
              if (in_keys && std::isnan(poison)) {
                ASSERT_TRUE(std::isnan(row[x])) << "key " << at;
              }
              if (!in_keys && x % 20 == 3) {
                ASSERT_FALSE(std::isfinite(row[x])) << "key " << at;
              }
            }
            const auto unread = expected[kind].row(clean, i);
            for (std::size_t x = 2 * 20; x < 4 * 20; ++x) ASSERT_EQ(row[x], unread[x]) << "key head 1";
          }
        }
      }
    }
  }
}

TEST_P(AttentionEdgeTest, NaNInASeenKeyOrAScoreOfPlusInfinityGivesNaNInOutAndLse) {
  for (const bool plus_infinity : {false, true}) {
    Batch batch;
    batch.spec = make_spec(1, 1, 8, 8, "causal");
    add_sequence(batch, 20, 20, 7);
    for (std::size_t i = 0; i < 8; ++i) {
      if (plus_infinity) {
        batch.k[10 * 8 + i] = kInf;
        for (std::size_t q = 10; q < 20; ++q) batch.q[q * 8 + i] = 1.0F;
      } else {
        batch.k[10 * 8 + i] = kNaN;
      }
    }
    for (const Output& got : both(batch)) {
      for (std::size_t i = 0; i < 20; ++i) {
        EXPECT_EQ(std::isnan(got.lse[i]), i >= 10) << i;
        for (std::size_t c = 0; c < 8; ++c) EXPECT_EQ(std::isnan(got.out[i * 8 + c]), i >= 10) << i;
      }
    }
  }
}

TEST_P(AttentionEdgeTest, DropoutDecidesInDoubleAsTheSpecDoes) {
  Batch batch;
  batch.spec = make_spec(1, 1, 8, 8);
  add_sequence(batch, 1, 1, 1);
  DropoutSpec& dropout = batch.spec.score.dropout;
  double drawn = 0.0;
  while (drawn < 0.5) drawn = uniform_at({++dropout.seed, dropout.layer, 0, 0, 0, 0});
  for (const double rate : {drawn, drawn + 1e-10}) {  // the second is the first in f32
    dropout.rate = rate;
    const Output got = run_contiguous(batch, options());
    EXPECT_EQ(got.out[0] == 0.0F, rate > drawn);
    EXPECT_EQ(oracle(batch).out[0] == 0.0, rate > drawn);
  }
}

TEST_P(AttentionEdgeTest, NaNInPaddingAndInInvisibleBiasChangesNothing) {
  Batch batch;
  batch.spec = make_spec(2, 1, 16, 16, "causal");
  add_sequence(batch, 40, 150, 8);
  batch.bias.assign(2 * 40 * 150, 0.5F);
  const std::int64_t hidden = 77;
  for (std::size_t i = 0; i < 80; ++i) batch.bias[i * 150 + hidden] = -kInf;
  const std::vector<Output> expected = both(batch);
  for (int i = 0; i < 16; ++i) batch.k[hidden * 16 + i] = batch.v[hidden * 16 + i] = kNaN;
  const std::vector<Output> got = both(batch);
  for (std::size_t kind = 0; kind < 2; ++kind)
    EXPECT_TRUE(same_bits(expected[kind].out, got[kind].out)) << kind;
  EXPECT_GT(got[0].stats.tiles_careful, 0);
}

TEST_P(AttentionEdgeTest, CarefulPathHasTheBitsOfTheFastPath) {
  Batch batch;  // a NaN in a value that no query sees sends whole tiles down the careful path
  batch.spec = make_spec(6, 2, 32, 40, "causal & (window(100) | first(4))");
  add_sequence(batch, 100, 400, 9);
  const std::vector<Output> fast = both(batch);
  for (std::int64_t key = 10; key < 190; key += 30) batch.v[static_cast<std::size_t>(key * 2 * 40)] = kNaN;
  const std::vector<Output> careful = both(batch);
  for (std::size_t kind = 0; kind < 2; ++kind) {
    EXPECT_EQ(fast[kind].stats.tiles_careful, 0);
    EXPECT_GT(careful[kind].stats.tiles_careful, 0);
    EXPECT_TRUE(same_bits(fast[kind].out, careful[kind].out)) << kind;
    EXPECT_TRUE(same_bits(fast[kind].lse, careful[kind].lse)) << kind;
  }
}

TEST_P(AttentionEdgeTest, OutputOfASingleKeyIsItsValueAndNeverMinusZero) {
  Batch batch;
  batch.spec = make_spec(1, 1, 16, 16, "causal & window(1)");
  add_sequence(batch, 140, 140, 10);
  batch.v[5 * 16] = -0.0F;
  for (const Output& got : both(batch)) {
    for (std::size_t i = 0; i < batch.v.size(); ++i) EXPECT_FLOAT_EQ(got.out[i], batch.v[i]);
    EXPECT_FALSE(std::signbit(got.out[5 * 16]));
  }
}

TEST_P(AttentionEdgeTest, ProductsThatUnderflowLeaveNoMinusZero) {
  Batch batch;  // scores of ln 2: p = 1/2, and half the smallest negative number rounds to minus 0
  batch.spec = make_spec(1, 1, 1, 16, "all");
  batch.spec.score.softmax_scale = 0.6931472;
  add_sequence(batch, 5, 9, 13);
  batch.q.assign(batch.q.size(), 1.0F);
  batch.k.assign(batch.k.size(), 1.0F);
  batch.v.assign(batch.v.size(), -std::numeric_limits<float>::denorm_min());
  for (const Output& got : both(batch)) {
    for (const float x : got.out) ASSERT_FALSE(x == 0.0F && std::signbit(x));
  }
}

TEST_P(AttentionEdgeTest, MoreThreadsThanCoresGiveTheSameBits) {
  Batch batch;
  batch.spec = make_spec(4, 2, 16, 16, "causal");
  add_sequence(batch, 100, 300, 11);
  const Output expected = run_contiguous(batch, options(1));
  EXPECT_TRUE(same_bits(expected.out, run_contiguous(batch, options(16)).out));
}

TEST_P(AttentionEdgeTest, PositionsUpTo2To31Work) {
  Batch batch;
  batch.spec = make_spec(1, 1, 16, 16, "causal & window(9)");
  batch.spec.score.alibi_slopes = {0.5};
  const std::int64_t end = std::int64_t{1} << 31;
  auto coords = coords_range(end - 30, end);
  add_sequence(batch, coords, coords, 12);
  for (const Output& got : both(batch)) EXPECT_TRUE(within_error_rule(batch, got));
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionEdgeTest,
                         ::testing::ValuesIn(kernels::available_tables().begin(),
                                             kernels::available_tables().end()),
                         [](const auto& table) { return std::string(table.param->name); });

}  // namespace
}  // namespace sightline::test
