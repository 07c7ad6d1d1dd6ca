#include "sightline/generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace sightline {
namespace {

constexpr float kLogits[] = {0.0F, 2.0F, 1.0F, 2.0F, -1.0F};

std::map<TokenId, int> count(const SamplingOptions& options, int num_draws,
                             std::span<const TokenId> history = {}) {
  std::map<TokenId, int> seen;
  Sampler sampler(options);
  for (int i = 0; i < num_draws; ++i) ++seen[*sampler.sample(kLogits, history)];
  return seen;
}

TEST(SamplerTest, GreedyTakesTheLargestAndTheSmallerIdOfATie) {
  EXPECT_EQ(*Sampler({}).sample(kLogits, {}), 1);
}

TEST(SamplerTest, OneSeedGivesOneSequenceAndAnotherSeedAnother) {
  SamplingOptions options{.temperature = 1.0, .seed = 7};
  Sampler a(options), b(options);
  options.seed = 8;
  Sampler c(options);
  std::vector<TokenId> x, y, z;
  for (int i = 0; i < 50; ++i) {
    x.push_back(*a.sample(kLogits, {}));
    y.push_back(*b.sample(kLogits, {}));
    z.push_back(*c.sample(kLogits, {}));
  }
  EXPECT_EQ(x, y);
  EXPECT_NE(x, z);
}

TEST(SamplerTest, FrequenciesFollowTheSoftmaxAtTheTemperature) {
  constexpr int kDraws = 20000;
  const auto seen = count({.temperature = 2.0, .seed = 1}, kDraws);
  double total = 0;
  for (const float x : kLogits) total += std::exp(x / 2.0);
  for (const auto& [id, n] : seen) {
    const double p = std::exp(kLogits[id] / 2.0) / total;
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(n, kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << id;
  }
  EXPECT_EQ(seen.size(), 5U);
}

TEST(SamplerTest, TopKTopPAndMinPKeepWhatTheySay) {
  EXPECT_EQ(count({.temperature = 5.0, .top_k = 2}, 500).size(), 2U);
  // Probabilities before the temperature: 0.392, 0.392, 0.144, ...: 0.78 needs two, 0.79 three.
  EXPECT_EQ(count({.temperature = 5.0, .top_p = 0.78}, 500).size(), 2U);
  EXPECT_EQ(count({.temperature = 5.0, .top_p = 0.79}, 500).size(), 3U);
  // exp(1 - 2) = 0.368.
  EXPECT_EQ(count({.temperature = 5.0, .min_p = 0.36}, 500).size(), 3U);
  EXPECT_EQ(count({.temperature = 5.0, .min_p = 0.37}, 500).size(), 2U);
}

TEST(SamplerTest, RepetitionPenaltyCountsOnlyTheLastTokens) {
  const std::vector<TokenId> history{1, 0, 0};
  EXPECT_EQ(*Sampler({.repetition_penalty = 1.5}).sample(kLogits, history), 3);
  EXPECT_EQ(*Sampler({.repetition_penalty = 1.5, .penalty_last_n = 2}).sample(kLogits, history), 1);
  EXPECT_EQ(*Sampler({.repetition_penalty = 1.5, .penalty_last_n = -1}).sample(kLogits, history), 3);
}

TEST(SamplerTest, RepetitionPenaltyWeakensLogitsOfEitherSign) {
  const float below_zero[] = {-1.0F, -1.2F};
  EXPECT_EQ(*Sampler({.repetition_penalty = 1.5}).sample(below_zero, std::vector<TokenId>{0}), 1);
  const float above_zero[] = {1.2F, 1.0F};
  EXPECT_EQ(*Sampler({.repetition_penalty = 1.5}).sample(above_zero, std::vector<TokenId>{0}), 1);
}

TEST(SamplerTest, ANanLogitIsAnErrorThatNamesTheToken) {
  const float logits[] = {0.0F, std::numeric_limits<float>::quiet_NaN()};
  const auto result = Sampler({}).sample(logits, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidContent);
  EXPECT_NE(result.error().message.find("token 1"), std::string::npos);
}

TEST(SamplerTest, OptionsOutOfRangeAreRefusedByName) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<SamplingOptions, const char*> bad[] = {{{.temperature = -0.1}, "temperature"},
                                                         {{.temperature = nan}, "temperature"},
                                                         {{.top_k = -1}, "top_k"},
                                                         {{.top_p = 0.0}, "top_p"},
                                                         {{.top_p = 1.1}, "top_p"},
                                                         {{.min_p = nan}, "min_p"},
                                                         {{.repetition_penalty = 0.0}, "repetition_penalty"},
                                                         {{.penalty_last_n = -2}, "penalty_last_n"}};
  for (const auto& [options, name] : bad) {
    const auto result = validate(options);
    ASSERT_FALSE(result) << name;
    EXPECT_NE(result.error().message.find(name), std::string::npos);
  }
  EXPECT_TRUE(validate(SamplingOptions{}));
}

}  // namespace
}  // namespace sightline
