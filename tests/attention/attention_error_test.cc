// Three runs: float64 oracle, plain f32 method, kernel; every score feature, mask rule and head width.
#include <gtest/gtest.h>

#include "attention/batch.h"
#include "attention/grid.h"
#include "sightline/base/rng.h"

namespace sightline::test {
namespace {

class AttentionErrorTest : public ::testing::TestWithParam<const kernels::KernelTable*> {
 protected:
  [[nodiscard]] RunOptions options() const { return {GetParam(), 2}; }

  void expect_rule(const Batch& batch, const std::string& what) const {
    EXPECT_TRUE(within_error_rule(batch, run_contiguous(batch, options()))) << what << ", contiguous";
    EXPECT_TRUE(within_error_rule(batch, run_paged(batch, {}, options()))) << what << ", paged";
  }
};

TEST_P(AttentionErrorTest, EveryHeadWidth) {
  for (const int dim : {1, 2, 3, 8, 17, 32, 40, 64, 80, 96, 111, 128, 256, 257}) {
    for (const int v_dim : {dim, dim % 50 + 1}) {
      Batch batch;
      batch.spec = make_spec(2, 1, dim, v_dim);
      add_sequence(batch, 37, 150, static_cast<std::uint64_t>(dim));
      expect_rule(batch, "dims " + std::to_string(dim) + " and " + std::to_string(v_dim));
    }
  }
}

TEST_P(AttentionErrorTest, EveryGroupSize) {
  for (const int group : {1, 2, 3, 4, 5, 7, 8, 12, 16, 100}) {
    Batch batch;
    batch.spec = make_spec(group * 2, 2, 16, 16);
    add_sequence(batch, 9, 70, static_cast<std::uint64_t>(group));
    expect_rule(batch, "group of " + std::to_string(group));
  }
}

TEST_P(AttentionErrorTest, EveryScoreFeature) {
  for (const auto& [name, batch] : every_score_feature()) expect_rule(batch, name);
}

TEST_P(AttentionErrorTest, BiasAlsoMinusInfinity) {
  const Batch batch = bias_that_hides();
  expect_rule(batch, "bias");
  const Output got = run_contiguous(batch, options());
  EXPECT_EQ(got.lse[7 * 2 + 1], -HUGE_VALF);
}

TEST_P(AttentionErrorTest, EveryRopeVariant) {
  std::vector<std::pair<std::string, RopeSpec>> ropes;
  for (const auto pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    RopeSpec rope;
    rope.pairing = pairing;
    rope.rotary_dim = 32;
    ropes.emplace_back("whole head", rope);
    rope.rotary_dim = 20;
    rope.cos_sin_magnitude = 1.2;
    ropes.emplace_back("part of the head", rope);
    rope.scaling.kind = RopeScalingKind::kYarn;
    rope.scaling.factor = 4.0;
    rope.scaling.original_context = 64;
    ropes.emplace_back("yarn", rope);
  }
  for (const auto& [name, rope] : ropes) {
    for (const auto stage : {CacheStage::kAfterRotation, CacheStage::kBeforeRotation}) {
      Batch batch;
      batch.spec = make_spec(4, 2, 32, 16);
      batch.spec.rope = rope;
      batch.spec.rope.cache_stage = stage;
      add_sequence(batch, 40, 200, 5);
      expect_rule(batch, name);
      for (const auto& c : batch.q_coords) batch.q_rope_pos.push_back(c.pos % 50);
      for (const auto& c : batch.kv_coords) batch.kv_rope_pos.push_back(c.pos % 50);
      expect_rule(batch, name + " with positions of its own");
    }
  }
}

TEST_P(AttentionErrorTest, InCachePositionsMeetFirstKeysWithTheSecondQuery) {
  Batch batch;
  batch.spec = make_spec(4, 2, 32, 16, "causal & (window(40) | first(4))");
  batch.spec.rope.pairing = RopePairing::kHalfSplit;
  batch.spec.rope.rotary_dim = 32;
  batch.spec.rope.cache_stage = CacheStage::kBeforeRotation;
  batch.spec.rope.position_policy = PositionPolicy::kInCache;
  add_sequence(batch, 60, 400, 5);
  expect_rule(batch, "in cache");
  const Output in_cache = run_contiguous(batch, options());
  batch.spec.rope.position_policy = PositionPolicy::kText;
  EXPECT_FALSE(same_bits(in_cache.out, run_contiguous(batch, options()).out));
}

TEST_P(AttentionErrorTest, EveryMaskRule) {
  const EveryMaskRule rules(make_spec(2, 1, 16, 8));
  for (const auto& [mask, batch] : rules.batches()) {
    EXPECT_TRUE(within_error_rule(batch, run_contiguous(batch, options()))) << mask;
  }
}

TEST_P(AttentionErrorTest, OutliersOfFlashAttention3) {
  Batch batch;  // N(0, 1) + N(0, 100) Bernoulli(0.001), arXiv:2407.08608 section 4.3
  batch.spec = make_spec(4, 2, 64, 64);
  add_sequence(batch, 200, 400, 12);
  Rng rng(13);
  for (auto* values : {&batch.q, &batch.k, &batch.v}) {
    for (float& x : *values) {
      if (rng.next_below(1000) == 0) x += static_cast<float>(10.0 * rng.next_normal());
    }
  }
  expect_rule(batch, "outliers");
}

TEST_P(AttentionErrorTest, ScoresUpTo1e30) {
  for (const float factor : {1e3F, 1e8F, 1e15F}) {
    Batch batch;
    batch.spec = make_spec(2, 1, 16, 16);
    add_sequence(batch, 30, 200, 14);
    for (float& x : batch.q) x *= factor;
    for (float& x : batch.k) x *= factor;
    expect_rule(batch, "scores times " + std::to_string(factor) + " squared");
  }
}

// Logits of thousands, equal up to a few units: what is lost at their size is lost in every weight. Numbers
// of few bits leave the plain method nothing to round, so the rule asks for almost exact weights.
TEST_P(AttentionErrorTest, LogitsFarFromZeroByAlibiAndByBias) {
  const auto coords = [](std::int64_t begin, std::int64_t end) {
    std::vector<TokenCoord> out;
    for (std::int64_t pos = begin; pos < end; ++pos) out.push_back({.pos = pos});
    return out;
  };
  for (const std::int64_t distance : {3000, 6000, 11000, 200000}) {
    for (const bool few_bits : {false, true}) {
      Batch batch;
      batch.spec = make_spec(4, 2, 16, 16);
      batch.spec.score.softmax_scale = 0.25;
      add_sequence(batch, coords(distance, distance + 20), coords(0, 300), 21);
      for (auto* values : {&batch.q, &batch.k}) {
        for (float& x : *values) x = few_bits ? std::round(x) : x;
      }
      const std::string what = std::to_string(distance) + (few_bits ? ", few bits" : ", normal");
      Batch by_alibi = batch;
      by_alibi.spec.score.alibi_slopes = {0.5, 0.125, 0.75, 0.015625};
      expect_rule(by_alibi, "alibi " + what);
      Rng rng(22);
      for (std::int64_t i = 0; i < 4 * 20 * 300; ++i) {
        batch.bias.push_back(static_cast<float>(distance) / 2 + static_cast<float>(rng.next_below(40)) / 8);
      }
      expect_rule(batch, "bias " + what);
      for (float& x : batch.bias) x = -x;
      batch.spec.score.sink_logits = {static_cast<double>(-distance / 2), 3.0, -1e5, 0.0};
      expect_rule(batch, "bias and sinks " + what);
    }
  }
}

TEST_P(AttentionErrorTest, ModifiedLogitsOverSeveralSplits) {
  Batch batch;
  batch.spec = make_spec(2, 1, 16, 16);
  batch.spec.score.alibi_slopes = {0.001, 0.0};
  batch.spec.score.sink_logits = {-2.0, 5.0};
  add_sequence(batch, 3, 2 * 2048 + 500, 23);
  expect_rule(batch, "slopes");
}

TEST_P(AttentionErrorTest, SubnormalAndTinyInputs) {
  for (const float factor : {1e-20F, 1e-38F, 1e-42F}) {
    Batch batch;
    batch.spec = make_spec(2, 1, 16, 16);
    add_sequence(batch, 30, 200, 15);
    for (float& x : batch.k) x *= factor;
    expect_rule(batch, "keys times " + std::to_string(factor));
  }
}

TEST_P(AttentionErrorTest, ShiftOfAllRotaryPositionsChangesNothingBeyondTheRule) {
  Batch batch;
  batch.spec = make_spec(4, 2, 64, 32);
  batch.spec.rope.pairing = RopePairing::kHalfSplit;
  batch.spec.rope.rotary_dim = 64;
  add_sequence(batch, 60, 200, 16);
  Batch shifted = batch;
  for (const auto& c : batch.q_coords) shifted.q_rope_pos.push_back(c.pos + 1000);
  for (const auto& c : batch.kv_coords) shifted.kv_rope_pos.push_back(c.pos + 1000);
  const Output got = run_contiguous(shifted, options());
  EXPECT_TRUE(within_error_rule(shifted, got));
  // The oracle of the unshifted batch, with the plain error of the shifted one.
  const Wide here = oracle(batch);
  const Wide there = oracle(shifted);
  for (std::size_t i = 0; i < here.out.size(); ++i)
    ASSERT_NEAR(here.out[i], there.out[i], 1e-10) << "float64";
  shifted.q_rope_pos.front() += 1;  // one query alone: a real change
  EXPECT_FALSE(same_bits(got.out, run_contiguous(shifted, options()).out));
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionErrorTest,
                         ::testing::ValuesIn(kernels::available_tables().begin(),
                                             kernels::available_tables().end()),
                         [](const auto& table) { return std::string(table.param->name); });

}  // namespace
}  // namespace sightline::test
