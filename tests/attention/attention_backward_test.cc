// The fused backward: three runs as in attention_error_test.cc, then what must hold to the bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "attention/backward.h"
#include "attention/grid.h"
#include "sightline/base/rng.h"

namespace sightline::test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class AttentionBackwardTest : public ::testing::TestWithParam<const kernels::KernelTable*> {
 protected:
  [[nodiscard]] RunOptions options(int num_threads = 2) const { return {GetParam(), num_threads}; }

  void expect_rule(const Batch& batch, const std::string& what) const {
    const Upstream up = random_upstream(batch, 99);
    const BackwardRun run = run_backward(batch, up, options());
    EXPECT_EQ(run.error, "") << what;
    EXPECT_TRUE(within_gradient_rule(batch, up, run.gradients)) << what;
  }
};

TEST_P(AttentionBackwardTest, EveryHeadWidth) {
  for (const int dim : {1, 3, 8, 17, 32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 256}) {
    for (const int v_dim : {dim, dim % 50 + 1}) {
      Batch batch;
      batch.spec = make_spec(2, 1, dim, v_dim);
      add_sequence(batch, 37, 150, static_cast<std::uint64_t>(dim));
      expect_rule(batch, "dims " + std::to_string(dim) + " and " + std::to_string(v_dim));
    }
  }
}

TEST_P(AttentionBackwardTest, EveryGroupSize) {
  for (const int group : {1, 2, 3, 4, 5, 7, 8, 12, 32, 150}) {
    Batch batch;
    batch.spec = make_spec(group * 2, 2, 16, 16);
    add_sequence(batch, 19, 140, static_cast<std::uint64_t>(group));
    expect_rule(batch, "group of " + std::to_string(group));
  }
}

TEST_P(AttentionBackwardTest, LengthsAcrossBlocksAndTiles) {
  const std::int64_t lengths[][2] = {{113, 203}, {1, 339}, {3, 799}, {127, 513}, {300, 300}, {145, 129}};
  for (const auto& [num_q, num_kv] : lengths) {
    Batch batch;
    batch.spec = make_spec(2, 1, 24, 16);
    add_sequence(batch, std::min(num_q, num_kv), num_kv, 31);
    expect_rule(batch, std::to_string(num_q) + " x " + std::to_string(num_kv));
  }
}

TEST_P(AttentionBackwardTest, EveryScoreFeature) {
  for (const auto& [name, batch] : every_score_feature()) expect_rule(batch, name);
}

TEST_P(AttentionBackwardTest, BiasAlsoMinusInfinity) {
  const Batch batch = bias_that_hides();
  const Upstream up = random_upstream(batch, 99);
  const Gradients got = run_backward(batch, up, options()).gradients;
  EXPECT_TRUE(within_gradient_rule(batch, up, got));
  for (std::size_t i = 0; i < batch.bias.size(); ++i) {
    if (std::isinf(batch.bias[i])) {
      ASSERT_EQ(got.d_bias[i], 0.0F) << i;
    }
  }
}

TEST_P(AttentionBackwardTest, EveryRopeVariant) {
  for (const auto pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    for (const int rotary_dim : {32, 20}) {
      Batch batch;
      batch.spec = make_spec(4, 2, 32, 16);
      batch.spec.rope.pairing = pairing;
      batch.spec.rope.rotary_dim = rotary_dim;
      batch.spec.rope.cos_sin_magnitude = 1.2;
      add_sequence(batch, 40, 200, 5);
      expect_rule(batch, "rotary_dim " + std::to_string(rotary_dim));
      for (const auto& c : batch.q_coords) batch.q_rope_pos.push_back(c.pos % 50);
      for (const auto& c : batch.kv_coords) batch.kv_rope_pos.push_back(c.pos % 50);
      expect_rule(batch, "positions of their own");
    }
  }
}

// Every rule: the numbers, exact zeros where nothing reaches, and equal bits for 1, 2, 3 and 5 threads.
TEST_P(AttentionBackwardTest, EveryMaskRuleWithEqualBitsForEveryThreadCount) {
  const EveryMaskRule rules(make_spec(4, 2, 16, 8));
  for (const auto& [mask, batch] : rules.batches()) {
    const Upstream up = random_upstream(batch, 98);
    const Gradients got = run_backward(batch, up, options(1)).gradients;
    EXPECT_TRUE(within_gradient_rule(batch, up, got)) << mask;
    for (const int threads : {2, 3, 5}) {
      EXPECT_TRUE(same_bits(got, run_backward(batch, up, options(threads)).gradients))
          << mask << ", " << threads << " threads";
    }
    for (std::int64_t j = 0; j < batch.num_kv(); ++j) {
      if (batch.kv_coords[at(j)].valid) continue;
      for (int c = 0; c < 2 * 16; ++c) ASSERT_EQ(got.d_k[at(j * 2 * 16 + c)], 0.0F) << mask;
      for (int c = 0; c < 2 * 8; ++c) ASSERT_EQ(got.d_v[at(j * 2 * 8 + c)], 0.0F) << mask;
      for (int c = 0; c < 4 * 16; ++c) ASSERT_EQ(got.d_q[at(j * 4 * 16 + c)], 0.0F) << mask;
    }
  }
}

TEST_P(AttentionBackwardTest, EqualBitsForEveryThreadCountWithEverythingOn) {
  Batch batch;
  batch.spec = make_spec(6, 2, 40, 24, "causal & (window(200) | first(3))");
  batch.spec.score = {0.2, 5.0, alibi_slopes(6), {1.0, 2.0, -1.0, 0.0, 0.5, 0.25}, {0.1, 3, 1}};
  batch.spec.rope.pairing = RopePairing::kHalfSplit;
  batch.spec.rope.rotary_dim = 40;
  add_sequence(batch, 500, 700, 5);
  add_sequence(batch, 130, 130, 6);
  add_sequence(batch, 1, 40, 7);
  Rng rng(3);
  for (std::int64_t i = 0; i < 6 * batch.num_q() * batch.max_kv(); ++i) {
    batch.bias.push_back(static_cast<float>(rng.next_normal()));
  }
  const Upstream up = random_upstream(batch, 97);
  const Gradients one = run_backward(batch, up, options(1)).gradients;
  for (const int threads : {2, 3, 5}) {
    EXPECT_TRUE(same_bits(one, run_backward(batch, up, options(threads)).gradients)) << threads << " threads";
  }
}

TEST_P(AttentionBackwardTest, LossOnTheFirstPositionsLeavesExactlyNothingInLaterKeysAndValues) {
  Batch batch;
  batch.spec = make_spec(4, 2, 32, 16);
  add_sequence(batch, 400, 400, 5);
  Upstream up = random_upstream(batch, 96);
  const std::int64_t kept = 130;
  std::fill(up.d_out.begin() + kept * 4 * 16, up.d_out.end(), 0.0F);
  std::fill(up.d_lse.begin() + kept * 4, up.d_lse.end(), 0.0F);
  const Gradients got = run_backward(batch, up, options()).gradients;
  for (std::size_t i = at(kept * 2 * 32); i < got.d_k.size(); ++i) ASSERT_EQ(got.d_k[i], 0.0F) << i;
  for (std::size_t i = at(kept * 2 * 16); i < got.d_v.size(); ++i) ASSERT_EQ(got.d_v[i], 0.0F) << i;
  EXPECT_NE(got.d_k[at((kept - 1) * 2 * 32)], 0.0F);
}

// What is not seen may hold anything: gradients of the others keep the bits that zeros there would give.
TEST_P(AttentionBackwardTest, NonFiniteTokensThatAreNotSeenChangeNothing) {
  Batch clean;
  clean.spec = make_spec(4, 2, 24, 16, "causal & window(40)");
  add_sequence(clean, 300, 300, 5);
  Upstream up = random_upstream(clean, 95);
  const HeadSpec& heads = clean.spec.heads;
  const auto set = [&](Batch& batch, Upstream& upstream, std::int64_t token, float x) {
    // The token as a key, and as a query.
    for (int c = 0; c < heads.num_kv_heads * heads.qk_head_dim; ++c) {
      batch.k[at(token * heads.num_kv_heads * heads.qk_head_dim + c)] = x;
    }
    for (int c = 0; c < heads.num_kv_heads * heads.v_head_dim; ++c) {
      batch.v[at(token * heads.num_kv_heads * heads.v_head_dim + c)] = x;
    }
    for (int c = 0; c < heads.num_q_heads * heads.qk_head_dim; ++c) {
      batch.q[at(token * heads.num_q_heads * heads.qk_head_dim + c)] = x;
    }
    for (int c = 0; c < heads.num_q_heads * heads.v_head_dim; ++c) {
      upstream.d_out[at(token * heads.num_q_heads * heads.v_head_dim + c)] = x;
    }
  };
  for (const float bad : {kNaN, HUGE_VALF}) {
    Batch batch = clean;
    Upstream upstream = up;
    Batch zero = clean;
    Upstream zero_up = up;
    const std::int64_t token = 150;
    set(batch, upstream, token, bad);
    set(zero, zero_up, token, 0.0F);
    const Gradients got = run_backward(batch, upstream, options()).gradients;
    const Gradients expected = run_backward(zero, zero_up, options()).gradients;
    // Keys 111..150 are seen by the bad query, queries 150..189 see the bad key.
    const auto same = [&](const std::vector<float>& a, const std::vector<float>& b, std::int64_t row,
                          int width) {
      for (int c = 0; c < width; ++c) {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(a[at(row * width + c)]),
                  std::bit_cast<std::uint32_t>(b[at(row * width + c)]))
            << "token " << row;
      }
    };
    for (std::int64_t row = 0; row < 300; ++row) {
      if (row < token - 39 || row > token + 39) {
        same(got.d_k, expected.d_k, row, heads.num_kv_heads * heads.qk_head_dim);
        same(got.d_v, expected.d_v, row, heads.num_kv_heads * heads.v_head_dim);
      }
      if (row < token || row > token + 39) {
        same(got.d_q, expected.d_q, row, heads.num_q_heads * heads.qk_head_dim);
      }
    }
    EXPECT_TRUE(std::isnan(got.d_q[at(token * heads.num_q_heads * heads.qk_head_dim)]));
  }
}

TEST_P(AttentionBackwardTest, GroupedHeadsEqualTheSumOverCopiedHeads) {
  Batch grouped;
  grouped.spec = make_spec(4, 1, 16, 16);
  add_sequence(grouped, 150, 150, 5);
  Batch copied = grouped;
  copied.spec = make_spec(4, 4, 16, 16);
  const auto copy = [](const std::vector<float>& from) {
    std::vector<float> to;
    for (std::size_t i = 0; i < from.size(); i += 16) {
      for (int h = 0; h < 4; ++h)
        to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(i),
                  from.begin() + static_cast<std::ptrdiff_t>(i) + 16);
    }
    return to;
  };
  copied.k = copy(grouped.k);
  copied.v = copy(grouped.v);
  const Upstream up = random_upstream(grouped, 94);
  const Gradients a = run_backward(grouped, up, options()).gradients;
  const Gradients b = run_backward(copied, up, options()).gradients;
  for (std::size_t i = 0; i < a.d_k.size(); ++i) {
    double k = 0.0;
    double v = 0.0;
    for (std::size_t h = 0; h < 4; ++h) {
      k += b.d_k[i / 16 * 64 + h * 16 + i % 16];
      v += b.d_v[i / 16 * 64 + h * 16 + i % 16];
    }
    ASSERT_NEAR(a.d_k[i], k, 2e-5 * (1 + std::abs(k)));
    ASSERT_NEAR(a.d_v[i], v, 2e-5 * (1 + std::abs(v)));
  }
}

// Weights come back from the lse. Where that is far from 0 its own rounding would be lost in every weight.
TEST_P(AttentionBackwardTest, LogitsFarFromZero) {
  for (const float distance : {100.0F, 3000.0F, 1e5F}) {
    for (const bool few_bits : {false, true}) {
      Batch batch;
      batch.spec = make_spec(4, 2, 16, 16);
      batch.spec.score.softmax_scale = 0.25;
      add_sequence(batch, 20, 300, 21);
      for (auto* values : {&batch.q, &batch.k}) {
        for (float& x : *values) x = few_bits ? std::round(x) : x;
      }
      Rng rng(22);
      for (std::int64_t i = 0; i < 4 * 20 * 300; ++i) {
        batch.bias.push_back(distance + static_cast<float>(rng.next_below(40)) / 8);
      }
      expect_rule(batch, "bias " + std::to_string(distance) + (few_bits ? ", few bits" : ""));
      batch.spec.score.sink_logits = {distance, 3.0, -1e5, 0.0};
      expect_rule(batch, "bias and sinks " + std::to_string(distance) + (few_bits ? ", few bits" : ""));
    }
  }
}

TEST_P(AttentionBackwardTest, RefusesWhatDoesNotFitAndWritesNothing) {
  Batch batch;
  batch.spec = make_spec(4, 2, 16, 8);
  add_sequence(batch, 20, 30, 5);
  const Upstream up = random_upstream(batch, 93);
  const auto refuses = [&](const Batch& given, const std::string& words, const ChangeArrays& change) {
    const BackwardRun run = run_backward(given, up, options(), change);
    EXPECT_NE(run.error.find(words), std::string::npos) << run.error;
    for (const float x : run.gradients.d_q) ASSERT_TRUE(std::isnan(x)) << words;
    for (const float x : run.gradients.d_k) ASSERT_TRUE(std::isnan(x)) << words;
  };
  refuses(batch, "d_k has a stride of 0", [](auto&, AttentionGradients& to) { to.d_k.strides[1] = 0; });
  refuses(batch, "d_v has shape [30, 2, 7], expected [30, 2, 8]",
          [](auto&, AttentionGradients& to) { to.d_v.shape[2] = 7; });
  refuses(batch, "d_q has no data", [](auto&, AttentionGradients& to) { to.d_q.data = nullptr; });
  refuses(batch, "d_out has shape [19, 4, 8], expected [20, 4, 8]",
          [](AttentionUpstream& from, auto&) { from.d_out.shape[0] = 19; });
  refuses(batch, "lse has no data", [](AttentionUpstream& from, auto&) { from.lse.data = nullptr; });
  std::vector<float> four(4);
  refuses(batch, "gradients.d_sink_logits has 4 entries, expected none",
          [&](auto&, AttentionGradients& to) { to.d_sink_logits = four; });
  refuses(batch, "d_bias (shaped as extras.bias) has shape [4, 20, 30], expected [0, 0, 0]",
          [&](auto&, AttentionGradients& to) { to.d_bias = dense_view<float, 3>(four.data(), {4, 20, 30}); });
  Batch in_cache = batch;
  in_cache.spec.mask = *parse_mask("causal & (window(8) | first(4))");
  in_cache.spec.rope.pairing = RopePairing::kHalfSplit;
  in_cache.spec.rope.rotary_dim = 16;
  in_cache.spec.rope.cache_stage = CacheStage::kBeforeRotation;
  in_cache.spec.rope.position_policy = PositionPolicy::kInCache;
  refuses(in_cache, "rope.position_policy = in_cache, expected text", {});
}

// Broadcast cells take the sum of what they stand for; gradients that nobody asks for are left out.
TEST_P(AttentionBackwardTest, BroadcastBiasTakesSumsAndWhatIsNotAskedForIsLeftOut) {
  Batch batch;
  batch.spec = make_spec(4, 2, 16, 8);
  batch.spec.score.sink_logits = {0.5, -3.0, 8.0, 0.0};
  add_sequence(batch, 150, 160, 5);
  add_sequence(batch, 20, 160, 6);
  batch.bias.assign(at(4 * batch.num_q() * batch.max_kv()), 0.25F);
  const Upstream up = random_upstream(batch, 92);
  const Gradients all = run_backward(batch, up, options()).gradients;
  const BackwardRun few = run_backward(batch, up, options(), [](auto&, AttentionGradients& to) {
    to.d_bias = {};
    to.d_sink_logits = {};
  });
  EXPECT_TRUE(same_bits(all.d_q, few.gradients.d_q));
  EXPECT_TRUE(same_bits(all.d_k, few.gradients.d_k));
  EXPECT_TRUE(std::isnan(few.gradients.d_sink_logits[0]));
  const std::int64_t num_keys = batch.max_kv();
  const BackwardRun by_key = run_backward(batch, up, options(3), [](auto&, AttentionGradients& to) {
    to.d_bias.strides[0] = to.d_bias.strides[1] = 0;
  });
  for (std::int64_t j = 0; j < num_keys; ++j) {
    double sum = 0.0;
    double size = 0.0;
    for (std::int64_t row = 0; row < 4 * batch.num_q(); ++row) {
      sum += all.d_bias[at(row * num_keys + j)];
      size += std::abs(all.d_bias[at(row * num_keys + j)]);
    }
    // 680 rounded additions.
    ASSERT_NEAR(by_key.gradients.d_bias[at(j)], sum, 680 * 6e-8 * size) << j;
  }
  // One cell for all pairs: threads that added to it at once would lose some.
  const auto one_cell = [&](int threads) {
    return run_backward(batch, up, options(threads),
                        [](auto&, AttentionGradients& to) { to.d_bias.strides = {0, 0, 0}; })
        .gradients.d_bias[0];
  };
  const float alone = one_cell(1);
  for (int i = 0; i < 5; ++i) ASSERT_EQ(one_cell(5), alone);
}

TEST_P(AttentionBackwardTest, LargeScores) {
  for (const float factor : {3.0F, 10.0F, 100.0F}) {
    Batch batch;
    batch.spec = make_spec(2, 1, 16, 16);
    add_sequence(batch, 30, 200, 14);
    for (float& x : batch.q) x *= factor;
    expect_rule(batch, "queries times " + std::to_string(factor));
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionBackwardTest,
                         ::testing::ValuesIn(kernels::available_tables().begin(),
                                             kernels::available_tables().end()),
                         [](const auto& table) { return std::string(table.param->name); });

}  // namespace
}  // namespace sightline::test
