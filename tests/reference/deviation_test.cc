// Deviations whose effect a formula of its own can tell: layouts, caches, precision of rotations.
#include "sightline/reference/deviation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "reference/random_call.h"
#include "sightline/reference/misread.h"
#include "sightline/reference/rotate.h"

namespace sightline::reference {
namespace {

using Numbers = std::vector<double>;

TEST(OutLayoutTest, HeadsFirstReadAsTokensFirstMixesTokensAndTransposingTwiceDoesSoTheOtherWay) {
  const RandomCall call(small_spec("causal", {2, 1, 4, 1}), 0, 3, 1);
  const Numbers out = call.forward().out;  // t0h0 t0h1 t1h0 t1h1 t2h0 t2h1
  EXPECT_EQ(call.forward({}, {.out_layout = OutLayout::kHeadsFirst}).out,
            (Numbers{out[0], out[2], out[4], out[1], out[3], out[5]}));
  // Read as [2 heads, 3 tokens] = (t0h0 t0h1 t1h0 | t1h1 t2h0 t2h1), then transposed.
  EXPECT_EQ(call.forward({}, {.out_layout = OutLayout::kTransposedTwice}).out,
            (Numbers{out[0], out[3], out[1], out[4], out[2], out[5]}));
}

TEST(FusedLayoutTest, FeaturesOfGroupsAndBlocksAreTakenForEachOther) {
  const AttentionSpec spec = small_spec("causal", {4, 2, 1, 1});
  RandomCall call(spec, 0, 1, 1);
  call.q = {10, 11, 12, 13};
  call.k = {20, 21};
  call.v = {30, 31};
  const auto read = [&](FusedLayout layout) {
    Deviation deviation;
    deviation.fused_layout = layout;
    MisreadInputs misread = MisreadInputs::make(spec, call.inputs(), deviation).value();
    return std::vector<Numbers>{misread.q(), misread.k(), misread.v()};
  };
  // Stored q0 q1 k0 v0 q2 q3 k1 v1.
  EXPECT_EQ(read(FusedLayout::kGroupsAsBlocks), (std::vector<Numbers>{{10, 11, 20, 30}, {12, 13}, {21, 31}}));
  // Stored q0 q1 q2 q3 k0 k1 v0 v1, read as (q q k v)(q q k v).
  EXPECT_EQ(read(FusedLayout::kBlocksAsGroups), (std::vector<Numbers>{{10, 11, 20, 21}, {12, 30}, {13, 31}}));
  EXPECT_FALSE(MisreadInputs::make(spec, RandomCall(spec, 1, 3, 1).inputs(),
                                   {.fused_layout = FusedLayout::kGroupsAsBlocks}));
}

TEST(CacheDeviationTest, EmptySlotsDrainWeightByTheirShare) {
  const RandomCall call(small_spec(), 0, 6, 2);
  const AttentionOutputs right = call.forward();
  const AttentionOutputs wrong = call.forward({}, {.num_zero_keys = 3});
  for (std::size_t row = 0; row < right.lse.size(); ++row) {
    const double z = std::exp(right.lse[row]);
    EXPECT_NEAR(wrong.lse[row], std::log(z + 3), 1e-12);
    for (std::size_t c = row * 5; c < (row + 1) * 5; ++c) {
      EXPECT_NEAR(wrong.out[c], right.out[c] * z / (z + 3), 1e-12);
    }
  }
}

TEST(CacheDeviationTest, UnreadKeysAreAsIfTheyWereNotThere) {
  const RandomCall call(small_spec("all"), 4, 7, 3);
  AttentionInputs in = call.inputs();
  in.num_cached = 4;
  const auto with_first = [&](std::int64_t num_keys) {
    AttentionInputs fewer = in;
    fewer.k.shape[0] = fewer.v.shape[0] = num_keys;
    fewer.kv_coords = in.kv_coords.first(static_cast<std::size_t>(num_keys));
    return attention_forward(call.spec, fewer).value().out;
  };
  EXPECT_EQ(attention_forward(call.spec, in, {}, {.num_unread_newest = 2}).value().out, with_first(5));
  EXPECT_EQ(attention_forward(call.spec, in, {}, {.own_keys_unread = true}).value().out, with_first(4));
}

TEST(CacheDeviationTest, ARingMasksTheNewestKeyOfEachSlotByItsSlot) {
  RandomCall call(small_spec("causal", {1, 1, 2, 6}), 2, 6, 4);
  call.v.assign(36, 0.0);
  for (std::size_t j = 0; j < 6; ++j) call.v[j * 6 + j] = 1;  // the output is the row of weights
  const Numbers out = call.forward({}, {.ring_slots = 4}).out;
  // Slots hold positions 4, 5, 2, 3; query 2 sees slots 0 to 2, the others all.
  const char* seen[] = {"001011", "001111", "001111", "001111"};
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 6; ++j) EXPECT_EQ(out[i * 6 + j] != 0, seen[i][j] == '1') << i << " " << j;
  }
}

// The state table of huggingface/transformers#37574: a ring of 4 slots, a prompt of 2, then a token a call.
TEST(CacheDeviationTest, ARingThatTurnsEarlyLosesItsOldestKeyAndReadsAnEmptySlotUntilItLeaves) {
  struct Row {
    std::int64_t position;
    const char* seen;  // of the keys so far
    int zeros;
  };
  const auto expect = [](std::int64_t prompt, std::int64_t empty, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const std::int64_t num_keys = row.position + 1;
      RandomCall call(small_spec("causal & window(4)", {1, 1, 2, 8}), row.position, num_keys, 4);
      call.v.assign(static_cast<std::size_t>(num_keys * 8), 0.0);
      for (std::int64_t j = 0; j < num_keys; ++j) call.v[static_cast<std::size_t>(j * 8 + j)] = 1;
      AttentionInputs in = call.inputs();
      std::vector<std::int64_t> begins{0};
      for (std::int64_t begin = prompt; begin < num_keys; ++begin) begins.push_back(begin);
      in.append_begins = begins;
      in.num_cached = row.position;
      const Numbers out =
          attention_forward(call.spec, in, {}, {.early_ring_slots = 4, .early_ring_empty = empty})
              .value()
              .out;
      // As many scores of 0 join the denominator.
      const AttentionOutputs right = attention_forward(call.spec, in, {.scores = true}).value();
      double sum = row.zeros;
      for (std::int64_t j = 0; j < num_keys; ++j) {
        if (row.seen[j] == '1') sum += std::exp(right.scores[static_cast<std::size_t>(j)]);
      }
      for (std::int64_t j = 0; j < num_keys; ++j) {
        const double score = right.scores[static_cast<std::size_t>(j)];
        EXPECT_NEAR(out[static_cast<std::size_t>(j)], row.seen[j] == '1' ? std::exp(score) / sum : 0.0, 1e-14)
            << "position " << row.position << ", key " << j;
      }
    }
  };
  expect(2, 1, {{2, "111", 0}, {3, "0111", 1}, {4, "00111", 1}, {5, "000111", 1}, {6, "0001111", 0}});
  expect(2, 2, {{2, "011", 2}, {3, "0011", 2}, {4, "00111", 1}, {5, "001111", 0}});
  expect(4, 1, {{4, "01111", 0}, {5, "001111", 0}});  // a prompt that fills it leaves nothing empty
}

TEST(CacheDeviationTest, SumsToBase2MergedAsNaturalOnesFavourTheLargerPart) {
  const RandomCall call(small_spec("all", {1, 1, 4, 3}), 3, 5, 5);
  AttentionInputs in = call.inputs();
  in.num_cached = 3;
  const AttentionOutputs wrong =
      attention_forward(call.spec, in, {}, {.parts_merged_in_base_2 = true}).value();
  AttentionInputs cached = in, fresh = in;
  cached.k.shape[0] = cached.v.shape[0] = 3;
  cached.kv_coords = in.kv_coords.first(3);
  fresh.k.shape[0] = fresh.v.shape[0] = 2;
  fresh.k.data += 3 * in.k.strides[0];
  fresh.v.data += 3 * in.v.strides[0];
  fresh.kv_coords = in.kv_coords.subspan(3);
  fresh.num_cached = 0;
  AttentionOutputs a = attention_forward(call.spec, cached).value();
  AttentionOutputs b = attention_forward(call.spec, fresh).value();
  for (double& x : a.lse) x *= std::numbers::log2e;
  for (double& x : b.lse) x *= std::numbers::log2e;
  const AttentionOutputs merged = merge_by_lse(a, b);
  EXPECT_LT(max_difference(wrong.out, merged.out), 1e-12);
  EXPECT_LT(max_difference(wrong.lse, merged.lse), 1e-12);
  in.num_cached = 0;
  EXPECT_EQ(attention_forward(call.spec, in, {}, {.parts_merged_in_base_2 = true}).value().out,
            call.forward().out)
      << "one part alone is exact";
}

TEST(CacheDeviationTest, CachedKeysAndValuesAreReadTimesTheirFactors) {
  const RandomCall call(small_spec("all"), 3, 5, 6);
  AttentionInputs in = call.inputs();
  in.num_cached = 3;
  RandomCall scaled = call;
  for (std::size_t i = 0; i < 3 * 2 * 6; ++i) scaled.k[i] *= 4;
  for (std::size_t i = 0; i < 3 * 2 * 5; ++i) scaled.v[i] *= 0.5;
  for (double& x : scaled.v) x *= 8;
  const Deviation deviation{.cached_key_factor = 4, .cached_value_factor = 0.5, .value_factor = 8};
  EXPECT_EQ(attention_forward(call.spec, in, {}, deviation).value().out, scaled.forward().out);
}

TEST(RopeDeviationTest, PositionsInBf16MergeAbove256AndAnglesLoseTheirLastDigits) {
  const RopeSpec rope = small_rope();
  const Numbers frequencies = rope_frequencies(rope, 0);
  const auto turn = [&](std::int64_t position, RopeStage stage, Precision precision) {
    Numbers cosines;
    for (const CosSin& t : cos_sin(rope, frequencies, position, Turn::kForward, stage, precision)) {
      cosines.push_back(t.cosine);
    }
    return cosines;
  };
  EXPECT_EQ(turn(257, RopeStage::kPosition, Precision::kBf16),
            turn(256, RopeStage::kNone, Precision::kDouble));
  EXPECT_NE(turn(257, RopeStage::kPosition, Precision::kF16),
            turn(256, RopeStage::kNone, Precision::kDouble));
  EXPECT_EQ(turn(3, RopeStage::kAngle, Precision::kF16)[0], std::cos(3.0));
  // 1001 in bf16 is 1000; the second frequency is 0.1, and 100.1 is 100 there.
  EXPECT_EQ(turn(1001, RopeStage::kAngle, Precision::kBf16), (Numbers{std::cos(1000.0), std::cos(100.0)}));
  EXPECT_EQ(turn(5, RopeStage::kTable, Precision::kBf16)[0], round_to(Precision::kBf16, std::cos(5.0)));
  EXPECT_EQ(turn(5, RopeStage::kFrequency, Precision::kBf16)[1],
            std::cos(5 * round_to(Precision::kBf16, frequencies[1])));
}

TEST(MisreadGradientTest, TheBackwardIsTheDerivativeOfWhatIsReadWrongly) {
  const Deviation deviations[] = {
      {.cached_key_factor = 3, .cached_value_factor = 0.5},
      {.value_factor = 4},
      {.keys_as_values = true},
      {.fused_layout = FusedLayout::kGroupsAsBlocks},
      {.fused_layout = FusedLayout::kBlocksAsGroups},
      {.fused_layout = FusedLayout::kHeadsFirst},
      {.out_layout = OutLayout::kHeadsFirst},
      {.out_layout = OutLayout::kTransposedTwice},
      {.num_zero_keys = 2},
      {.rope_rounded = RopeStage::kAngle, .rope_precision = Precision::kBf16},
      {.bias_heads_transposed = true},
  };
  AttentionSpec spec = small_spec("causal", {4, 2, 4, 4});
  spec.rope = small_rope();
  RandomCall call(spec, 0, 3, 7);
  call.add_bias(8);
  for (const Deviation& deviation : deviations) {
    AttentionInputs in = call.inputs();
    in.num_cached = 2;
    const AttentionGradients grads = attention_backward(spec, in, call.upstream(), deviation).value();
    const auto loss = [&] {
      const Numbers out = attention_forward(spec, in, {}, deviation).value().out;
      double sum = 0;
      for (std::size_t i = 0; i < out.size(); ++i) sum += out[i] * call.d_out[i];
      return sum;
    };
    const auto check = [&](Numbers& x, const Numbers& d) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double kept = x[i];
        constexpr double kStep = 1e-5;
        x[i] = kept + kStep;
        const double above = loss();
        x[i] = kept - kStep;
        const double below = loss();
        x[i] = kept;
        EXPECT_NEAR(d[i], (above - below) / (2 * kStep), 1e-8) << &deviation - deviations << " at " << i;
      }
    };
    check(call.q, grads.d_q);
    check(call.k, grads.d_k);
    check(call.v, grads.d_v);
  }
}

TEST(GradientDeviationTest, SeveredGradientsAreZeroAndUnwrittenRowsAreWhatWasThere) {
  RandomCall call(small_spec(), 0, 4, 9);
  call.q_coords[3].valid = call.kv_coords[3].valid = false;
  const AttentionGradients right = call.backward();
  const AttentionGradients severed = call.backward({.severed_scores = true});
  EXPECT_EQ(severed.d_q, Numbers(right.d_q.size(), 0.0));
  EXPECT_EQ(severed.d_k, Numbers(right.d_k.size(), 0.0));
  EXPECT_EQ(severed.d_v, right.d_v);
  EXPECT_EQ(call.backward({.severed_d_v = true}).d_v, Numbers(right.d_v.size(), 0.0));
  const AttentionGradients nan = call.backward({.num_unwritten_rows = 2});
  const AttentionGradients padding = call.backward({.padding_unwritten = true});
  for (std::size_t i = 0; i < right.d_k.size(); ++i) {
    const std::size_t row = i / 12;
    EXPECT_EQ(std::isnan(nan.d_k[i]), row >= 2);
    EXPECT_EQ(padding.d_k[i], row == 3 ? kLeftover : right.d_k[i]);
  }
}

TEST(CacheDeviationTest, MoreCachedKeysThanThereAreKeysAreRefused) {
  const RandomCall call(small_spec("all"), 0, 5, 6);
  AttentionInputs in = call.inputs();
  for (const std::int64_t num_cached : {-1, 6}) {
    in.num_cached = num_cached;
    EXPECT_FALSE(attention_forward(call.spec, in, {}, {.parts_merged_in_base_2 = true}));
    EXPECT_FALSE(attention_backward(call.spec, in, call.upstream(), {}));
  }
}

TEST(ForwardSelectionTest, ASelectionOfAnotherSizeIsRefused) {
  const RandomCall call(small_spec(), 0, 3, 10);
  const std::vector<std::uint8_t> only(11, 1);
  EXPECT_FALSE(attention_forward(call.spec, call.inputs(), {.only = only}));
}

TEST(ForwardSelectionTest, OnlyTheRowsAndHeadsAskedForAreComputed) {
  const RandomCall call(small_spec(), 0, 3, 10);
  const Numbers all = call.forward().out;
  const std::vector<std::uint8_t> only{0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1};
  const Numbers some = call.forward({.only = only}).out;
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(some[i], only[i / 5] != 0 ? all[i] : 0.0);
}

}  // namespace
}  // namespace sightline::reference
