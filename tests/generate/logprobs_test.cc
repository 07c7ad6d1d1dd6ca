// The entry of one token under a row of logits.
#include "generate/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sightline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LogprobsTest, TheLikeliestComeFirstAndOfEqualsTheSmallerId) {
  std::vector<double> scratch;
  const float logits[] = {0.0F, 2.0F, -kInfinity, 2.0F, 1.0F, 2.0F};
  const auto entry = token_logprob(logits, 4, 4, scratch);
  ASSERT_TRUE(entry);
  std::vector<TokenId> ids;
  for (const auto& top : entry->top) ids.push_back(top.id);
  EXPECT_EQ(ids, (std::vector<TokenId>{1, 3, 5, 4}));
  EXPECT_EQ(entry->top[0].logprob, entry->top[2].logprob);
  EXPECT_EQ(*entry->logprob, entry->top[3].logprob);
}

TEST(LogprobsTest, AskingForMoreThanThereAreGivesAllAndATokenThatCannotComeMinusInfinity) {
  std::vector<double> scratch;
  const float logits[] = {0.0F, -kInfinity};
  const auto entry = token_logprob(logits, 1, 9, scratch);
  ASSERT_TRUE(entry);
  EXPECT_EQ(*entry->logprob, -std::numeric_limits<double>::infinity());
  ASSERT_EQ(entry->top.size(), 2U);
  EXPECT_EQ(entry->top[0].logprob, 0.0);
}

TEST(LogprobsTest, ARowWithoutADistributionIsAnErrorThatNamesTheToken) {
  std::vector<double> scratch;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    const float logits[] = {0.0F, 1.0F, bad};
    const auto entry = token_logprob(logits, 0, 2, scratch);
    ASSERT_FALSE(entry) << bad;
    EXPECT_EQ(entry.error().kind, ErrorKind::kInvalidContent);
    EXPECT_NE(entry.error().message.find("token 2 is"), std::string::npos) << entry.error().message;
  }
  const float none[] = {-kInfinity, -kInfinity};
  EXPECT_FALSE(token_logprob(none, 0, 2, scratch));
}

}  // namespace
}  // namespace sightline
