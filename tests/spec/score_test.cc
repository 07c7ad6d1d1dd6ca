// Heads and scores.
#include "sightline/spec/score.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sightline {
namespace {

std::string message_of(const auto& result) {
  return result ? std::string("no error") : result.error().message;
}

TEST(HeadsTest, GroupsAreConsecutive) {
  const HeadSpec heads{8, 2, 64, 64};
  for (int h = 0; h < 8; ++h) EXPECT_EQ(kv_head_for(heads, h), h < 4 ? 0 : 1);
  EXPECT_EQ(kv_head_for(HeadSpec{8, 8, 64, 64}, 5), 5);
  EXPECT_EQ(kv_head_for(HeadSpec{8, 1, 64, 64}, 5), 0);
}

TEST(HeadsTest, CountsThatDoNotDivideAreRefusedWithBoth) {
  EXPECT_EQ(message_of(validate(HeadSpec{8, 3, 64, 64})),
            "heads: num_kv_heads = 3, which does not divide num_q_heads = 8");
  EXPECT_NE(message_of(validate(HeadSpec{8, 0, 64, 64})).find("num_kv_heads = 0"), std::string::npos);
  EXPECT_NE(message_of(validate(HeadSpec{8, 16, 64, 64})).find("does not divide"), std::string::npos);
  EXPECT_NE(message_of(validate(HeadSpec{8, 2, 4097, 64})).find("qk_head_dim = 4097, expected 1 to 4096"),
            std::string::npos);
  EXPECT_TRUE(validate(HeadSpec{64, 8, 192, 128}));
}

TEST(ScoreTest, OrderIsScaleSoftcapBiasAlibi) {
  const HeadSpec heads{2, 1, 16, 16};
  ScoreSpec score;
  EXPECT_EQ(score_logit(score, heads, 0, 8.0, 0.0, -3), 2.0);  // 8 / sqrt(16)
  score.softmax_scale = 0.5;
  score.logit_softcap = 3.0;
  score.alibi_slopes = {0.25, 0.125};
  EXPECT_EQ(score_logit(score, heads, 1, 8.0, 10.0, -4), 3.0 * std::tanh(4.0 / 3.0) + 10.0 - 0.5);
}

TEST(ScoreTest, ScaleFollowsTheQueryWidthNotTheValueWidth) {
  EXPECT_EQ(softmax_scale(ScoreSpec{}, HeadSpec{1, 1, 64, 16}), 0.125);
}

TEST(ScoreTest, AlibiSlopesAreThePapers) {
  const auto eight = alibi_slopes(8);
  for (int h = 0; h < 8; ++h) EXPECT_EQ(eight[static_cast<std::size_t>(h)], std::exp2(-(h + 1)));
  // 12 heads: the 8 of above and every other one of 16.
  const auto twelve = alibi_slopes(12);
  ASSERT_EQ(twelve.size(), 12u);
  EXPECT_EQ(twelve[7], std::exp2(-8));
  EXPECT_EQ(twelve[8], std::exp2(-0.5));
  EXPECT_EQ(twelve[9], std::exp2(-1.5));
  EXPECT_EQ(twelve[11], std::exp2(-3.5));
  EXPECT_TRUE(alibi_slopes(0).empty());
}

TEST(ScoreTest, RefusalsNameTheField) {
  const HeadSpec heads{2, 1, 16, 16};
  const auto refused = [&](auto change) {
    ScoreSpec score;
    change(score);
    return message_of(validate(score, heads));
  };
  EXPECT_NE(refused([](ScoreSpec& s) { s.softmax_scale = NAN; }).find("softmax_scale = nan"),
            std::string::npos);
  EXPECT_NE(refused([](ScoreSpec& s) { s.logit_softcap = -1; }).find("logit_softcap = -1"),
            std::string::npos);
  EXPECT_NE(refused([](ScoreSpec& s) { s.alibi_slopes = {1}; }).find("alibi_slopes has 1"),
            std::string::npos);
  EXPECT_NE(refused([](ScoreSpec& s) { s.alibi_slopes = {1, INFINITY}; }).find("alibi_slopes[1]"),
            std::string::npos);
  EXPECT_NE(refused([](ScoreSpec& s) { s.sink_logits = {1, NAN}; }).find("sink_logits[1]"),
            std::string::npos);
  EXPECT_NE(refused([](ScoreSpec& s) { s.dropout.rate = 1; }).find("dropout.rate = 1"), std::string::npos);
  EXPECT_EQ(refused([](ScoreSpec& s) { s.sink_logits = {0, -INFINITY}; }), "no error");
}

}  // namespace
}  // namespace sightline
