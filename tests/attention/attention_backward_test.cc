// The fused backward: three runs as in attention_error_test.cc, then what must hold to the bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "attention/backward.h"
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
    EXPECT_TRUE(within_gradient_rule(batch, up, run_backward(batch, up, options()).gradients)) << what;
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
  const auto base = make_spec(4, 2, 32, 16);
  std::vector<std::pair<std::string, AttentionSpec>> specs;
  const auto add = [&](const char* name, auto change) {
    specs.emplace_back(name, base);
    change(specs.back().second);
  };
  add("scale", [](AttentionSpec& s) { s.score.softmax_scale = 0.37; });
  add("scale 0", [](AttentionSpec& s) { s.score.softmax_scale = 0.0; });
  add("negative scale", [](AttentionSpec& s) { s.score.softmax_scale = -0.2; });
  add("large scale", [](AttentionSpec& s) { s.score.softmax_scale = 40.0; });
  add("softcap", [](AttentionSpec& s) { s.score.logit_softcap = 3.0; });
  add("softcap 50", [](AttentionSpec& s) { s.score.logit_softcap = 50.0; });
  add("alibi", [](AttentionSpec& s) { s.score.alibi_slopes = alibi_slopes(4); });
  add("sinks", [](AttentionSpec& s) { s.score.sink_logits = {0.5, -3.0, 8.0, 0.0}; });
  add("dropout", [](AttentionSpec& s) { s.score.dropout = {0.3, 7, 2}; });
  add("all",
      [](AttentionSpec& s) { s.score = {0.2, 5.0, alibi_slopes(4), {1.0, 2.0, -1.0, 0.0}, {0.1, 3, 1}}; });
  for (const auto& [name, spec] : specs) {
    Batch batch;
    batch.spec = spec;
    add_sequence(batch, 40, 200, 5);
    add_sequence(batch, 1, 130, 6);
    expect_rule(batch, name);
  }
}

TEST_P(AttentionBackwardTest, BiasAlsoMinusInfinity) {
  Batch batch;
  batch.spec = make_spec(2, 1, 16, 16);
  add_sequence(batch, 30, 140, 8);
  Rng rng(9);
  for (std::int64_t i = 0; i < 2 * 30 * 140; ++i) {
    batch.bias.push_back(rng.next_below(4) == 0 ? -HUGE_VALF : static_cast<float>(rng.next_normal()));
  }
  for (std::int64_t j = 0; j < 140; ++j) batch.bias[at((30 + 7) * 140 + j)] = -HUGE_VALF;
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

struct MaskedTokens {
  std::vector<TokenCoord> coords;
  std::vector<std::uint8_t> dense;
  std::vector<std::int32_t> nodes;
  std::vector<std::int32_t> parent;
  MaskTables tables;
};

MaskedTokens masked_tokens() {
  MaskedTokens t;
  Rng rng(77);
  for (std::int64_t i = 0; i < 260; ++i) {
    TokenCoord c;
    c.segment = static_cast<std::int32_t>(i / 90);
    c.segment_start = i / 90 * 90;
    c.pos = i;
    c.span = i % 50 < 12 ? static_cast<std::int32_t>(i / 50 + 1) : 0;
    c.flags = rng.next_below(8) == 0 ? 1 : 0;
    c.valid = rng.next_below(20) != 0;
    t.coords.push_back(c);
  }
  t.dense.resize(260 * 260);
  for (auto& x : t.dense) x = rng.next_below(3) == 0;
  t.nodes.assign(260, -1);
  for (std::size_t i = 240; i < 260; ++i) {
    t.nodes[i] = static_cast<std::int32_t>(t.parent.size());
    t.parent.push_back(t.parent.empty() ? -1 : static_cast<std::int32_t>(rng.next_below(t.parent.size())));
  }
  return t;
}

constexpr const char* kMasks[] = {"all",
                                  "none",
                                  "causal",
                                  "causal & window(33)",
                                  "ahead(5)",
                                  "causal & (window(20) | first(4))",
                                  "causal & segment",
                                  "segment",
                                  "causal & chunk(32)",
                                  "(causal | span) & window(60) & ahead(59)",
                                  "causal & dilated(3)",
                                  "causal & tree",
                                  "causal | query_is(0)",
                                  "causal & (window(16) | key_is(0))",
                                  "dense",
                                  "dense & causal",
                                  "!causal",
                                  "causal & !dense & segment"};

// Every rule: the numbers, exact zeros where nothing reaches, and equal bits for 1, 2, 3 and 5 threads.
TEST_P(AttentionBackwardTest, EveryMaskRuleWithEqualBitsForEveryThreadCount) {
  MaskedTokens t = masked_tokens();
  t.tables.dense = dense_view<const std::uint8_t, 2>(t.dense.data(), {260, 260});
  t.tables.q_node = t.tables.kv_node = t.nodes;
  t.tables.parent = t.parent;
  for (const char* mask : kMasks) {
    Batch batch;
    batch.spec = make_spec(4, 2, 16, 8, mask);
    add_sequence(batch, t.coords, t.coords, 11);
    batch.tables = {t.tables};
    const Upstream up = random_upstream(batch, 98);
    const Gradients got = run_backward(batch, up, options(1)).gradients;
    EXPECT_TRUE(within_gradient_rule(batch, up, got)) << mask;
    for (const int threads : {2, 3, 5}) {
      EXPECT_TRUE(same_bits(got, run_backward(batch, up, options(threads)).gradients))
          << mask << ", " << threads << " threads";
    }
    for (std::int64_t j = 0; j < 260; ++j) {
      if (t.coords[at(j)].valid) continue;
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
