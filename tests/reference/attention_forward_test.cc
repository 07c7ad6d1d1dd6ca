#include <gtest/gtest.h>

#include <numbers>

#include "reference/random_call.h"

namespace sightline::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Rounding of a sum of a few dozen doubles of size one.
constexpr double kRounding = 1e-14;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

TEST(AttentionForwardTest, TwoKeysByHand) {
  AttentionSpec spec = small_spec("all", {1, 1, 1, 1});
  spec.score.softmax_scale = 0.5;
  RandomCall call(spec, 1, 2, 1);
  call.q = {2.0};
  call.k = {1.0, 3.0};
  call.v = {10.0, 20.0};
  const AttentionOutputs outputs = call.forward({.weights = true, .scores = true});
  // Scores 1 and 3.
  const double w = 1 / (1 + std::exp(2.0));
  EXPECT_NEAR(outputs.out[0], 10 * w + 20 * (1 - w), 1e-13);
  EXPECT_NEAR(outputs.lse[0], std::log(std::exp(1.0) + std::exp(3.0)), kRounding);
  EXPECT_EQ(outputs.scores, (std::vector<double>{1.0, 3.0}));
  EXPECT_NEAR(outputs.weights[0], w, kRounding);
}

TEST(AttentionForwardTest, OrderIsScaleThenSoftcapThenBiasAndAlibi) {
  AttentionSpec spec = small_spec("all", {1, 1, 1, 1});
  spec.score.softmax_scale = 0.5;
  spec.score.logit_softcap = 2.0;
  spec.score.alibi_slopes = {0.25};
  RandomCall call(spec, 1, 2, 1);
  call.q = {2.0};
  call.k = {1.0, 3.0};
  call.add_bias(1);
  call.bias = {7.0, -5.0};
  const AttentionOutputs outputs = call.forward({.scores = true});
  EXPECT_NEAR(outputs.scores[0], 2 * std::tanh(1.0 / 2) + 7.0 - 0.25, kRounding);
  EXPECT_NEAR(outputs.scores[1], 2 * std::tanh(3.0 / 2) - 5.0, kRounding);
}

TEST(AttentionForwardTest, RowWithNoVisibleKeyIsZeroAndLseIsMinusInfinityOrTheSink) {
  AttentionSpec spec = small_spec("none");
  for (const bool has_sink : {false, true}) {
    if (has_sink) spec.score.sink_logits = {0.5, -1, 2, 0};
    const RandomCall call(spec, 2, 5, 3);
    const AttentionOutputs outputs = call.forward({.weights = true});
    for (const double x : outputs.out) EXPECT_EQ(x, 0.0);
    for (const double x : outputs.weights) EXPECT_EQ(x, 0.0);
    for (std::size_t row = 0; row < outputs.lse.size(); ++row) {
      EXPECT_EQ(outputs.lse[row], has_sink ? spec.score.sink_logits[row % 4] : -kInfinity);
    }
  }
}

TEST(AttentionForwardTest, InvalidQuerySeesNothingAndInvalidKeyIsSeenByNobody) {
  RandomCall call(small_spec(), 0, 5, 4);
  call.q_coords[2].valid = false;
  call.kv_coords[1].valid = false;
  const AttentionOutputs outputs = call.forward({.weights = true});
  for (int h = 0; h < 4; ++h) {
    EXPECT_EQ(outputs.lse[at(2 * 4 + h)], -kInfinity);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(outputs.weights[at((h * 5 + i) * 5 + 1)], 0.0);
  }
}

TEST(AttentionForwardTest, NanOrInfinityInAnUnseenKeyChangesNothing) {
  RandomCall call(small_spec(), 0, 6, 5);
  call.spec.rope = small_rope();
  const AttentionOutputs clean = call.forward();
  for (const double poison : {kNaN, kInfinity, -kInfinity}) {
    RandomCall poisoned = call;
    for (int c = 0; c < 2 * 6; ++c) poisoned.k[at(5 * 12 + c)] = poison;
    for (int c = 0; c < 2 * 5; ++c) poisoned.v[at(5 * 10 + c)] = poison;
    const AttentionOutputs outputs = poisoned.forward();
    for (std::size_t x = 0; x < 5 * 4 * 5; ++x) EXPECT_EQ(outputs.out[x], clean.out[x]);
    for (std::size_t x = 0; x < 5 * 4; ++x) EXPECT_EQ(outputs.lse[x], clean.lse[x]);
    EXPECT_TRUE(std::isnan(outputs.out.back()) || std::isinf(outputs.out.back()));
  }
}

TEST(AttentionForwardTest, NanOrAScoreOfPlusInfinityInASeenKeyGivesNan) {
  AttentionSpec spec = small_spec("causal", {1, 1, 1, 2});
  RandomCall call(spec, 2, 3, 6);
  call.q = {1.0};
  for (const double poison : {kNaN, kInfinity}) {
    call.k = {0.5, poison, 0.25};
    const AttentionOutputs outputs = call.forward();
    EXPECT_TRUE(std::isnan(outputs.out[0]));
    EXPECT_TRUE(std::isnan(outputs.lse[0]));
  }
  call.k = {0.5, 0.5, 0.5};
  call.v[2] = kNaN;
  EXPECT_TRUE(std::isnan(call.forward().out[0]));
  EXPECT_FALSE(std::isnan(call.forward().out[1]));
}

TEST(AttentionForwardTest, ScoresOfMinusInfinityAloneAreAsNoKeySeen) {
  AttentionSpec spec = small_spec("causal", {1, 1, 1, 2});
  RandomCall call(spec, 1, 2, 7);
  call.q = {1.0};
  call.k = {-kInfinity, -kInfinity};
  EXPECT_EQ(call.forward().out, (std::vector<double>{0, 0}));
  EXPECT_EQ(call.forward().lse[0], -kInfinity);
  call.spec.score.sink_logits = {1.5};
  EXPECT_EQ(call.forward().out, (std::vector<double>{0, 0}));
  EXPECT_EQ(call.forward().lse[0], 1.5);
  call.v[0] = kNaN;  // not seen either
  EXPECT_EQ(call.forward().out, (std::vector<double>{0, 0}));
}

TEST(AttentionForwardTest, ASinkFarAboveTheScoresTakesAllWithoutOverflow) {
  AttentionSpec spec = small_spec("causal", {1, 1, 1, 2});
  spec.score.sink_logits = {2000};
  const AttentionOutputs outputs = RandomCall(spec, 1, 2, 7).forward();
  EXPECT_EQ(outputs.out, (std::vector<double>{0, 0}));
  EXPECT_EQ(outputs.lse[0], 2000);
}

TEST(AttentionForwardTest, BiasOfMinusInfinityHidesTheKeyEvenWhenItIsNan) {
  RandomCall call(small_spec("all"), 0, 4, 8);
  call.add_bias(1);
  for (int h = 0; h < 4; ++h) {
    for (int i = 0; i < 4; ++i) call.bias[at((h * 4 + i) * 4 + 2)] = -kInfinity;
  }
  const AttentionOutputs clean = call.forward({.weights = true});
  for (int c = 0; c < 12; ++c) call.k[at(2 * 12 + c)] = kNaN;
  EXPECT_EQ(call.forward().out, clean.out);
  EXPECT_EQ(clean.weights[2], 0.0);
}

TEST(AttentionForwardTest, FiniteBiasIsANumberAndHidesNothing) {
  RandomCall call(small_spec("all", {1, 1, 2, 2}), 0, 2, 9);
  call.add_bias(1);
  call.bias.assign(4, -1e30);
  const AttentionOutputs outputs = call.forward({.weights = true});
  EXPECT_NEAR(outputs.weights[0] + outputs.weights[1], 1.0, kRounding);
}

TEST(AttentionForwardTest, WeightsSumToOneMinusTheSinksShare) {
  AttentionSpec spec = small_spec();
  spec.score.sink_logits = {0.5, -1, 2, 0};
  const RandomCall call(spec, 0, 6, 10);
  const AttentionOutputs outputs = call.forward({.weights = true});
  for (int h = 0; h < 4; ++h) {
    for (int i = 0; i < 6; ++i) {
      double sum = 0;
      for (int j = 0; j < 6; ++j) sum += outputs.weights[at((h * 6 + i) * 6 + j)];
      const double sink_share = std::exp(spec.score.sink_logits[at(h)] - outputs.lse[at(i * 4 + h)]);
      EXPECT_NEAR(sum, 1 - sink_share, kRounding);
    }
  }
}

TEST(AttentionForwardTest, ASinkEqualsAnExtraKeyWithThatScoreAndValueZero) {
  AttentionSpec spec = small_spec("all", {1, 1, 2, 2});
  RandomCall plain(spec, 0, 4, 11);
  plain.add_bias(2);
  RandomCall with_key = plain;
  for (int i = 0; i < 4; ++i) with_key.bias[at(i * 4)] = 0.75;
  for (int c = 0; c < 2; ++c) with_key.k[at(c)] = with_key.v[at(c)] = 0;
  RandomCall with_sink = plain;
  for (int i = 0; i < 4; ++i) with_sink.bias[at(i * 4)] = -kInfinity;
  with_sink.spec.score.sink_logits = {0.75};
  EXPECT_LT(max_difference(with_key.forward().out, with_sink.forward().out), kRounding);
  EXPECT_LT(max_difference(with_key.forward().lse, with_sink.forward().lse), kRounding);
}

TEST(AttentionForwardTest, GroupedHeadsEqualMhaWithCopiedHeads) {
  const RandomCall grouped(small_spec("causal", {6, 2, 4, 3}), 0, 5, 12);
  RandomCall copied(small_spec("causal", {6, 6, 4, 3}), 0, 5, 12);
  copied.q = grouped.q;
  for (int j = 0; j < 5; ++j) {
    for (int h = 0; h < 6; ++h) {
      for (int c = 0; c < 4; ++c) copied.k[at((j * 6 + h) * 4 + c)] = grouped.k[at((j * 2 + h / 3) * 4 + c)];
      for (int c = 0; c < 3; ++c) copied.v[at((j * 6 + h) * 3 + c)] = grouped.v[at((j * 2 + h / 3) * 3 + c)];
    }
  }
  EXPECT_EQ(grouped.forward().out, copied.forward().out);
  EXPECT_EQ(grouped.forward().lse, copied.forward().lse);
}

TEST(AttentionForwardTest, HeadsThatShareKeysAndValuesDifferInWeightsAndOutputs) {
  const RandomCall call(small_spec("causal", {4, 1, 4, 3}), 0, 5, 13);
  const AttentionOutputs outputs = call.forward({.weights = true});
  const std::int64_t last = 4;
  for (int h = 1; h < 4; ++h) {
    EXPECT_GT(std::abs(outputs.weights[at((h * 5 + last) * 5)] - outputs.weights[at(last * 5)]), 1e-3);
    EXPECT_GT(std::abs(outputs.out[at((last * 4 + h) * 3)] - outputs.out[at(last * 4 * 3)]), 1e-3);
  }
}

TEST(AttentionForwardTest, ConstantShiftOfRotaryPositionsChangesNothingForPureRope) {
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    RandomCall call(small_spec(), 0, 7, 14);
    call.spec.rope = small_rope(pairing);
    const AttentionOutputs before = call.forward();
    for (int p = 0; p < 7; ++p) call.q_rope_pos.push_back(p + 1000);
    call.kv_rope_pos = call.q_rope_pos;
    // Angles near 1000 carry an absolute error of about 1000 * 2^-53.
    EXPECT_LT(max_difference(call.forward().out, before.out), 1e-11);
    call.kv_rope_pos.assign(7, 0);
    EXPECT_GT(max_difference(call.forward().out, before.out), 1e-3);
  }
}

TEST(AttentionForwardTest, ConstantShiftOfRotaryPositionsChangesTheOutputUnderScalingByCurrentLength) {
  RandomCall call(small_spec(), 0, 7, 15);
  call.spec.rope = small_rope();
  call.spec.rope.scaling.kind = RopeScalingKind::kDynamicNtk;
  call.spec.rope.scaling.factor = 4;
  call.spec.rope.scaling.original_context = 4;
  RandomCall moved = call;
  for (int p = 0; p < 7; ++p) moved.q_rope_pos.push_back(p + 1000);
  moved.kv_rope_pos = moved.q_rope_pos;
  call.rope_length = moved.rope_length = 7;
  EXPECT_LT(max_difference(call.forward().out, moved.forward().out), 1e-11);
  const AttentionOutputs fixed = call.forward();
  call.spec.rope.length_policy = moved.spec.rope.length_policy = RopeLengthPolicy::kCurrentLength;
  EXPECT_EQ(call.forward().out, fixed.out);
  EXPECT_GT(max_difference(call.forward().out, moved.forward().out), 1e-3);
}

TEST(AttentionForwardTest, InCachePositionsCapTheDistanceToKeptFirstKeys) {
  RandomCall call(small_spec("causal & (first(2) | window(3))"), 9, 10, 16);
  call.spec.rope = small_rope();
  call.spec.rope.position_policy = PositionPolicy::kInCache;
  const AttentionOutputs capped = call.forward({.scores = true});
  // A cache of 2 + 3 tokens: key 0 at distance 4, key 1 at 3, then keys 7, 8, 9 at 2, 1, 0.
  RandomCall in_cache = call;
  in_cache.spec.rope.position_policy = PositionPolicy::kText;
  in_cache.kv_rope_pos = {0, 1, 0, 0, 0, 0, 0, 2, 3, 4};
  in_cache.q_rope_pos = {4};
  EXPECT_LT(max_difference(capped.out, in_cache.forward().out), 1e-12);
  in_cache.kv_rope_pos.clear();
  in_cache.q_rope_pos.clear();
  EXPECT_GT(max_difference(capped.out, in_cache.forward().out), 1e-4);
}

TEST(AttentionForwardTest, CosSinMagnitudeScalesTheRotatedPartOfScoresByItsSquare) {
  RandomCall call(small_spec("causal", {1, 1, 6, 2}), 0, 4, 17);
  call.spec.rope = small_rope(RopePairing::kHalfSplit, 4);
  for (std::size_t i = 0; i < call.q.size(); ++i) {
    if (i % 6 >= 4) call.q[i] = 0;
  }
  const AttentionOutputs plain = call.forward({.scores = true});
  call.spec.rope.cos_sin_magnitude = 1.5;
  const AttentionOutputs scaled = call.forward({.scores = true});
  for (std::size_t i = 0; i < plain.scores.size(); ++i) {
    if (plain.scores[i] == -kInfinity) continue;
    EXPECT_NEAR(scaled.scores[i], 2.25 * plain.scores[i], kRounding * 10);
  }
}

TEST(AttentionForwardTest, DropoutKeepsTheLseAndScalesWhatItKeeps) {
  RandomCall call(small_spec(), 0, 8, 18);
  const AttentionOutputs plain = call.forward({.weights = true});
  call.spec.score.dropout = {.rate = 0.4, .seed = 7, .layer = 2};
  const AttentionOutputs dropped = call.forward({.weights = true});
  EXPECT_EQ(dropped.lse, plain.lse);
  EXPECT_EQ(dropped.weights, plain.weights);
  int num_zero = 0, num_kept = 0;
  for (int h = 0; h < 4; ++h) {
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j <= i; ++j) {
        const std::size_t pair = at((h * 8 + i) * 8 + j);
        const bool keep = uniform_at({7, 2, h, 0, i, j}) >= 0.4F;
        EXPECT_EQ(dropped.dropped_weights[pair], keep ? plain.weights[pair] * (1 / (1 - 0.4)) : 0.0);
        ++(keep ? num_kept : num_zero);
      }
    }
  }
  EXPECT_GT(num_zero, 20);
  EXPECT_GT(num_kept, 40);
}

TEST(AttentionForwardTest, AFutureEditEvenToNanLeavesThePastAlone) {
  const RandomCall call(small_spec("causal & window(4)"), 0, 8, 19);
  const AttentionOutputs before = call.forward();
  for (const double edit : {3.0, kNaN}) {
    RandomCall edited = call;
    for (std::size_t c = 6 * 12; c < edited.k.size(); ++c) edited.k[c] = edit;
    for (std::size_t c = 6 * 10; c < edited.v.size(); ++c) edited.v[c] = edit;
    const AttentionOutputs after = edited.forward();
    for (std::size_t x = 0; x < 6 * 20; ++x) EXPECT_EQ(after.out[x], before.out[x]);
    EXPECT_NE(after.out[6 * 20], before.out[6 * 20]);
  }
}

TEST(AttentionForwardTest, MergedHalvesEqualTheWhole) {
  AttentionSpec spec = small_spec();
  spec.score.alibi_slopes = alibi_slopes(4);
  RandomCall whole(spec, 0, 9, 20);
  whole.spec.score.sink_logits = {0.5, -1, 2, 0};
  RandomCall old_keys = whole, new_keys = whole;
  new_keys.spec.score.sink_logits.clear();
  for (int j = 0; j < 9; ++j) (j < 5 ? new_keys : old_keys).kv_coords[at(j)].valid = false;
  const AttentionOutputs merged = merge_by_lse(old_keys.forward(), new_keys.forward());
  EXPECT_LT(max_difference(merged.out, whole.forward().out), kRounding);
  EXPECT_LT(max_difference(merged.lse, whole.forward().lse), kRounding);

  const Deviation base_2{.lse_is_base_2 = true};
  const AttentionOutputs wrong = merge_by_lse(old_keys.forward({}, base_2), new_keys.forward({}, base_2));
  EXPECT_GT(max_difference(wrong.out, whole.forward().out), 1e-3);
}

TEST(AttentionForwardTest, ChunksByPositionEqualTheWhole) {
  RandomCall whole(small_spec("causal & window(5)"), 0, 9, 21);
  whole.spec.rope = small_rope();
  RandomCall chunk(whole.spec, 6, 9, 0);
  chunk.q.assign(whole.q.begin() + 6 * 24, whole.q.end());
  chunk.k = whole.k;
  chunk.v = whole.v;
  const AttentionOutputs all = whole.forward();
  EXPECT_EQ(chunk.forward().out, std::vector<double>(all.out.begin() + 6 * 20, all.out.end()));
}

TEST(AttentionForwardTest, ShapesThatDisagreeAreRefusedWithBothShapes) {
  RandomCall call(small_spec(), 0, 4, 22);
  AttentionInputs in = call.inputs();
  in.v.shape[2] = 4;
  const auto outputs = attention_forward(call.spec, in);
  ASSERT_FALSE(outputs);
  EXPECT_EQ(outputs.error().kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(outputs.error().message, "attention_forward: v has shape [4, 2, 4], expected [4, 2, 5]");
  in = call.inputs();
  in.kv_coords = in.kv_coords.first(3);
  EXPECT_EQ(attention_forward(call.spec, in).error().message,
            "attention_forward: kv_coords has 3 entries, expected 4");
}

TEST(AttentionForwardTest, CoordinatesWhoseDifferencesWouldOverflowAreRefusedExceptThoseOfPadding) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::min();
  const auto message = [](const RandomCall& call) {
    const auto outputs = attention_forward(call.spec, call.inputs());
    return outputs ? std::string("accepted") : outputs.error().message;
  };
  const RandomCall right(small_spec("causal & first(2)"), 0, 4, 30);
  RandomCall call = right;
  call.kv_coords[2].segment_start = kFar;
  EXPECT_EQ(
      message(call),
      "attention_forward: token 2 of the keys has coordinate -9223372036854775808, expected within 2^53");
  call.kv_coords[2].valid = false;
  EXPECT_EQ(message(call), "accepted");
  call = right;
  call.q_coords[1].pos = kFar;
  EXPECT_NE(message(call).find("token 1 of the queries"), std::string::npos);
  call = right;
  call.kv_rope_pos = {0, 1, 2, kFar};
  EXPECT_NE(message(call).find("token 3 of the keys"), std::string::npos);
}

TEST(AttentionForwardTest, EveryForwardDeviationShows) {
  AttentionSpec spec = small_spec("causal");
  spec.score.logit_softcap = 2;
  spec.score.sink_logits = {0.5, -1, 2, 0};
  RandomCall call(spec, 0, 6, 23);
  call.add_bias(3);
  const AttentionOutputs right = call.forward();
  const Deviation out_deviations[] = {
      {.head_map = HeadMap::kModulo},
      {.fill_value = -2.0},
      {.mask_is_added = true},
      {.softcap_form = SoftcapForm::kScoreTimesTanh},
      {.softcap_after_bias = true},
      {.scale_multiplies_bias = true},
      {.sink_count = 2},
      {.softmax_precision = Precision::kBf16},
  };
  for (const Deviation& deviation : out_deviations) {
    EXPECT_GT(max_difference(call.forward({}, deviation).out, right.out), 1e-3);
  }
  const AttentionOutputs base_2 = call.forward({}, {.lse_is_base_2 = true});
  EXPECT_EQ(base_2.out, right.out);
  EXPECT_NEAR(base_2.lse[0] / right.lse[0], std::numbers::log2e, 1e-14);
  call.spec.mask = parse_mask("none").value();
  EXPECT_TRUE(std::isnan(call.forward({}, {.empty_row_is_nan = true}).out[0]));
  // A finite fill in a row that sees nothing gives the mean of all values, unless there is a sink.
  call.spec.score.sink_logits.clear();
  double mean = 0;
  for (int j = 0; j < 6; ++j) mean += call.v[at(j * 10)] / 6;
  EXPECT_NEAR(call.forward({}, {.fill_value = -1e4}).out[0], mean, kRounding);
}

}  // namespace
}  // namespace sightline::reference
