#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "reference/random_call.h"
#include "reference/step_sweep.h"

namespace sightline::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
// Four-point differences in double reach about eps^(4/5) = 3e-13 times the size of the loss's derivatives.
constexpr double kVDepth = 1e-10;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// A loss that is curved in every output, so that even v shows a V:
/// sum w sin(out) + sum u sin(lse), with w = d_out and u = d_lse of the call.
double curved_loss(const RandomCall& call, const Deviation& deviation = {}) {
  const AttentionOutputs outputs = call.forward({}, deviation);
  double loss = 0;
  for (std::size_t i = 0; i < outputs.out.size(); ++i) loss += call.d_out[i] * std::sin(outputs.out[i]);
  for (std::size_t i = 0; i < call.d_lse.size(); ++i) {
    if (std::isfinite(outputs.lse[i])) loss += call.d_lse[i] * std::sin(outputs.lse[i]);
  }
  return loss;
}

/// The gradients of curved_loss by the oracle's backward.
AttentionGradients curved_gradients(const RandomCall& call, const Deviation& deviation = {}) {
  const AttentionOutputs outputs = call.forward({}, deviation);
  RandomCall up = call;
  for (std::size_t i = 0; i < up.d_out.size(); ++i) up.d_out[i] *= std::cos(outputs.out[i]);
  for (std::size_t i = 0; i < up.d_lse.size(); ++i) {
    up.d_lse[i] *= std::isfinite(outputs.lse[i]) ? std::cos(outputs.lse[i]) : 1;
  }
  return up.backward(deviation);
}

struct NamedSweep {
  const char* input;
  StepSweep sweep;
};

/// The sweep of every input that the call has.
std::vector<NamedSweep> sweep_all(RandomCall call, const Deviation& deviation = {}) {
  const AttentionGradients grads = curved_gradients(call, deviation);
  const auto loss = [&] { return curved_loss(call, deviation); };
  ScoreSpec& score = call.spec.score;
  std::vector<NamedSweep> sweeps;
  sweeps.push_back({"q", sweep_steps(loss, call.q, grads.d_q)});
  sweeps.push_back({"k", sweep_steps(loss, call.k, grads.d_k)});
  sweeps.push_back({"v", sweep_steps(loss, call.v, grads.d_v)});
  if (!call.bias.empty()) sweeps.push_back({"bias", sweep_steps(loss, call.bias, grads.d_bias)});
  if (!score.alibi_slopes.empty()) {
    sweeps.push_back({"alibi_slopes", sweep_steps(loss, score.alibi_slopes, grads.d_alibi_slopes)});
  }
  if (!score.sink_logits.empty()) {
    sweeps.push_back({"sink_logits", sweep_steps(loss, score.sink_logits, grads.d_sink_logits)});
  }
  return sweeps;
}

void expect_v_everywhere(const RandomCall& call) {
  for (const NamedSweep& s : sweep_all(call))
    EXPECT_TRUE(s.sweep.is_v(kVDepth)) << s.input << "\n" << s.sweep.text();
}

TEST(AttentionBackwardTest, GroupedHeadsWithDifferentWidthsShowTheV) {
  expect_v_everywhere(RandomCall(small_spec("causal", {4, 2, 3, 5}), 2, 5, 1));
}

TEST(AttentionBackwardTest, RotationOfBothPairingsWithMagnitudeShowsTheV) {
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    RandomCall call(small_spec("causal", {2, 1, 6, 3}), 1, 5, 2);
    call.spec.rope = small_rope(pairing);
    call.spec.rope.cos_sin_magnitude = 1.2;
    call.kv_rope_pos = {0, 3, 4, 9, 11};
    expect_v_everywhere(call);
  }
}

TEST(AttentionBackwardTest, InCachePositionsShowTheV) {
  RandomCall call(small_spec("causal & (first(1) | window(2))", {2, 1, 4, 3}), 3, 6, 3);
  call.spec.rope = small_rope();
  call.spec.rope.position_policy = PositionPolicy::kInCache;
  expect_v_everywhere(call);
}

TEST(AttentionBackwardTest, SoftcapShowsTheV) {
  RandomCall call(small_spec("causal", {2, 1, 4, 3}), 1, 5, 4);
  call.spec.score.logit_softcap = 1.5;
  expect_v_everywhere(call);
}

TEST(AttentionBackwardTest, BiasAlibiSinksAndUpstreamLseShowTheV) {
  RandomCall call(small_spec("causal | window(2)", {4, 2, 3, 2}), 1, 5, 5);
  call.spec.score.alibi_slopes = alibi_slopes(4);
  call.spec.score.sink_logits = {0.5, -1, 2, 0};
  call.add_bias(6);
  call.add_d_lse(7);
  expect_v_everywhere(call);
}

TEST(AttentionBackwardTest, ABroadcastBiasGetsTheSum) {
  RandomCall call(small_spec("causal", {4, 2, 3, 2}), 1, 5, 8);
  Rng rng(1);
  call.bias = RandomCall::normals(rng, 5);
  call.bias_strides = {0, 0, 1};
  expect_v_everywhere(call);
  // One matrix for all heads, stored by columns.
  call.bias = RandomCall::normals(rng, 4 * 5);
  call.bias_strides = {0, 1, 4};
  expect_v_everywhere(call);
}

TEST(AttentionBackwardTest, DropoutShowsTheVAndAnotherDrawDoesNot) {
  RandomCall call(small_spec("causal", {2, 1, 3, 2}), 0, 6, 9);
  call.spec.score.dropout = {.rate = 0.3, .seed = 5, .layer = 1};
  call.add_d_lse(10);
  expect_v_everywhere(call);
  for (const NamedSweep& s : sweep_all(call, {.backward_dropout_seed_offset = 1})) {
    EXPECT_TRUE(s.sweep.is_flat(1e-3)) << s.input << "\n" << s.sweep.text();
  }
}

TEST(AttentionBackwardTest, EmptyRowsPassOnNothingButTheirLseToTheSink) {
  RandomCall call(small_spec("causal", {2, 1, 3, 2}), 0, 4, 11);
  call.spec.score.sink_logits = {0.5, -1};
  call.add_d_lse(12);
  call.q_coords[1].valid = false;
  call.kv_coords[0].valid = false;  // row 0 sees nothing either
  expect_v_everywhere(call);

  const AttentionGradients grads = call.backward();
  for (std::size_t c = 0; c < 2 * 2 * 3; ++c) EXPECT_EQ(grads.d_q[c], 0.0);
  for (const int row : {0, 1}) {
    RandomCall alone = call;
    alone.d_out.assign(call.d_out.size(), 0);
    alone.d_lse.assign(call.d_lse.size(), 0);
    alone.d_lse[at(row * 2 + 1)] = 3;
    EXPECT_EQ(alone.backward().d_sink_logits, (std::vector<double>{0, 3}));
  }
  call.spec.score.sink_logits.clear();
  call.d_out.assign(call.d_out.size(), 0);
  call.d_lse = {1, 1, 1, 1, 0, 0, 0, 0};
  const AttentionGradients nothing = call.backward();
  for (const auto* d : {&nothing.d_q, &nothing.d_k, &nothing.d_v}) {
    for (const double x : *d) EXPECT_EQ(x, 0.0);
  }
}

TEST(AttentionBackwardTest, InvisiblePairsHaveExactlyZeroGradientEvenWhenTheyAreNan) {
  RandomCall call(small_spec("causal", {2, 1, 3, 2}), 0, 4, 13);
  for (std::size_t c = 3 * 3; c < 4 * 3; ++c) call.k[c] = kNaN;
  for (std::size_t c = 3 * 2; c < 4 * 2; ++c) call.v[c] = kInfinity;
  call.q_coords.pop_back();
  call.q.resize(3 * 6);
  call.d_out.resize(3 * 4);
  const AttentionGradients grads = call.backward();
  for (std::size_t c = 3 * 3; c < 4 * 3; ++c) EXPECT_EQ(grads.d_k[c], 0.0);
  for (std::size_t c = 3 * 2; c < 4 * 2; ++c) EXPECT_EQ(grads.d_v[c], 0.0);
  for (const double x : grads.d_q) EXPECT_TRUE(std::isfinite(x));
}

TEST(AttentionBackwardTest, RowSumsOfDsAreBalancedByTheSinksShareAndTheUpstreamOfLse) {
  RandomCall call(small_spec("causal", {3, 1, 4, 3}), 5, 6, 14);
  call.spec.score.sink_logits = {0.5, -1, 2};
  call.add_bias(15);  // the gradient of a full bias is dS
  for (const bool has_d_lse : {false, true}) {
    if (has_d_lse) call.add_d_lse(16);
    const AttentionGradients grads = call.backward();
    for (int h = 0; h < 3; ++h) {
      double sum = grads.d_sink_logits[at(h)];
      for (int j = 0; j < 6; ++j) sum += grads.d_bias[at(h * 6 + j)];
      EXPECT_NEAR(sum, has_d_lse ? call.d_lse[at(h)] : 0.0, 1e-15 * 8);
    }
    double broken = 0;
    const AttentionGradients without_term = call.backward({.omit_row_term = true});
    for (int j = 0; j < 6; ++j) broken += without_term.d_bias[at(j)];
    EXPECT_GT(std::abs(broken + without_term.d_sink_logits[0] - (has_d_lse ? call.d_lse[0] : 0.0)), 1e-3);
  }
}

TEST(AttentionBackwardTest, KeyGradientsAreTheSumOverCopiedHeads) {
  const RandomCall grouped(small_spec("causal", {4, 2, 3, 2}), 0, 5, 17);
  RandomCall copied = grouped;
  copied.spec.heads.num_kv_heads = 4;
  copied.k.clear();
  copied.v.clear();
  for (int j = 0; j < 5; ++j) {
    for (int h = 0; h < 4; ++h) {
      for (int c = 0; c < 3; ++c) copied.k.push_back(grouped.k[at((j * 2 + h / 2) * 3 + c)]);
      for (int c = 0; c < 2; ++c) copied.v.push_back(grouped.v[at((j * 2 + h / 2) * 2 + c)]);
    }
  }
  const AttentionGradients one = grouped.backward(), many = copied.backward();
  EXPECT_EQ(one.d_q, many.d_q);
  for (int j = 0; j < 5; ++j) {
    for (int g = 0; g < 2; ++g) {
      for (int c = 0; c < 3; ++c) {
        const double sum = many.d_k[at((j * 4 + 2 * g) * 3 + c)] + many.d_k[at((j * 4 + 2 * g + 1) * 3 + c)];
        EXPECT_NEAR(one.d_k[at((j * 2 + g) * 3 + c)], sum, 1e-14);
      }
    }
  }
}

TEST(AttentionBackwardTest, EveryBackwardDeviationGivesAFlatLineInWhatItBreaks) {
  RandomCall call(small_spec("causal & window(3)", {4, 2, 3, 2}), 0, 5, 18);
  call.spec.score.logit_softcap = 1.5;
  call.spec.score.sink_logits = {0.5, -1, 2, 0};
  struct Row {
    Deviation deviation;
    std::vector<std::string> broken;
  };
  std::vector<Row> rows(6);
  rows[0].deviation.omit_row_term = true;
  rows[0].broken = {"q", "k", "sink_logits"};
  rows[1].deviation.omit_softcap_gradient = true;
  rows[1].broken = {"q", "k"};
  rows[2].deviation.omit_sink_gradient = true;
  rows[2].broken = {"sink_logits"};
  rows[3].deviation.backward_mask = parse_mask("all").value();
  rows[3].broken = {"q", "k", "v"};
  rows[4].deviation.gqa_reduction = GqaReduction::kMean;
  rows[4].broken = {"k", "v"};
  rows[5].deviation.gqa_reduction = GqaReduction::kLastHead;
  rows[5].broken = {"k", "v"};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (const NamedSweep& s : sweep_all(call, rows[r].deviation)) {
      const bool broken = std::ranges::count(rows[r].broken, s.input) > 0;
      EXPECT_EQ(s.sweep.is_flat(1e-3), broken) << "row " << r << " " << s.input << "\n" << s.sweep.text();
      EXPECT_EQ(s.sweep.is_v(kVDepth), !broken) << "row " << r << " " << s.input << "\n" << s.sweep.text();
    }
  }
}

/// The causal probe: the largest change of the rows before `edited_row` when that key and value change.
double change_of_the_past(RandomCall call, std::int64_t edited_row) {
  const AttentionOutputs before = call.forward();
  const HeadSpec& h = call.spec.heads;
  for (std::int64_t c = 0; c < h.num_kv_heads * h.qk_head_dim; ++c) {
    call.k[at(edited_row * h.num_kv_heads * h.qk_head_dim + c)] += 1;
  }
  const AttentionOutputs after = call.forward();
  const auto num_past = edited_row * h.num_q_heads * h.v_head_dim;
  return max_difference({before.out.begin(), before.out.begin() + num_past},
                        {after.out.begin(), after.out.begin() + num_past});
}

TEST(AttentionBackwardTest, GradientCorrectIsNotObjectiveCorrect) {
  // A forward that peeks at the future passes finite differences and fails the causal probe.
  const RandomCall peeking(small_spec("all", {2, 1, 3, 2}), 0, 5, 19);
  for (const NamedSweep& s : sweep_all(peeking))
    EXPECT_TRUE(s.sweep.is_v(kVDepth)) << s.input << s.sweep.text();
  EXPECT_GT(change_of_the_past(peeking, 4), 1e-3);

  // A right forward whose backward lacks the row term does the reverse.
  const RandomCall causal(small_spec("causal", {2, 1, 3, 2}), 0, 5, 19);
  EXPECT_EQ(change_of_the_past(causal, 4), 0.0);
  const auto sweeps = sweep_all(causal, {.omit_row_term = true});
  EXPECT_TRUE(sweeps[0].sweep.is_flat(1e-3)) << sweeps[0].sweep.text();
  EXPECT_TRUE(sweeps[1].sweep.is_flat(1e-3)) << sweeps[1].sweep.text();
}

TEST(AttentionBackwardTest, UpstreamOfAnotherShapeIsRefused) {
  const RandomCall call(small_spec(), 0, 4, 20);
  AttentionUpstream up = call.upstream();
  up.d_out.shape[0] = 3;
  const auto grads = attention_backward(call.spec, call.inputs(), up);
  ASSERT_FALSE(grads);
  EXPECT_EQ(grads.error().message, "attention_backward: d_out has shape [3, 4, 5], expected [4, 4, 5]");
}

}  // namespace
}  // namespace sightline::reference
