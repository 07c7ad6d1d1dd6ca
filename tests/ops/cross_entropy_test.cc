#include "sightline/ops/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/ops/elementwise.h"

namespace sightline {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(LogSoftmaxTest, ProbabilitiesSumToOneAndDifferencesAreThoseOfTheLogits) {
  const std::vector<float> logits = {3.0F, -1.5F, 1000.0F, 998.0F, 2.25F};
  std::vector<double> out(5);
  log_softmax(logits, out);
  double sum = 0.0;
  for (const double x : out) sum += std::exp(x);
  constexpr double kUlp = 0x1p-43;  // of 1000, which the log-sum-exp is stored as
  EXPECT_NEAR(sum, 1.0, 2 * kUlp);
  EXPECT_EQ(out[2] - out[3], 2.0);
  EXPECT_NEAR(out[2], -std::log1p(std::exp(-2.0)), 2 * kUlp);
}

TEST(LogSoftmaxTest, OneEntryHasProbabilityOne) {
  std::vector<double> out(1);
  log_softmax(std::vector<float>{-7.0F}, out);
  EXPECT_EQ(out[0], 0.0);
}

TEST(LogSumExpTest, EdgesAreNumbersOrNanAsStated) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(log_sum_exp({}), -kInfinity);
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInfinity, -kInfinity}), -kInfinity);
  EXPECT_EQ(log_sum_exp(std::vector<float>{-kInfinity, 2.0F}), 2.0);
  for (const auto& bad : {std::vector<float>{nan, 1.0F}, {1.0F, nan}, {kInfinity, 1.0F}}) {
    EXPECT_TRUE(std::isnan(log_sum_exp(bad)));
  }
}

TEST(CrossEntropyTest, SumsTargetsInRowOrderAndLeavesOutRowsWithoutOne) {
  const std::int64_t rows = 41;
  const std::int64_t vocab = 17;
  Rng rng(3);
  std::vector<float> logits(static_cast<std::size_t>(rows * vocab));
  for (float& x : logits) x = static_cast<float>(4.0 * rng.next_normal());
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < rows; ++i) {
    targets.push_back(i % 5 == 2 ? -1 : static_cast<std::int32_t>(rng.next_below(17)));
  }
  double expected = 0.0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < 41; ++i) {
    if (targets[i] < 0) continue;
    std::vector<double> row(17);
    log_softmax(std::span(logits).subspan(i * 17, 17), row);
    expected -= row[static_cast<std::size_t>(targets[i])];
    ++count;
  }
  for (const int num_threads : {1, 2, 3, 5}) {
    ThreadPool pool(num_threads);
    std::vector<double> row_loss(41, 99.0);
    const auto loss =
        cross_entropy_forward(dense_view<const float>(logits.data(), {rows, vocab}), targets, row_loss, pool);
    ASSERT_TRUE(loss) << loss.error().message;
    EXPECT_EQ(loss->loss_sum, expected);
    EXPECT_EQ(loss->num_targets, count);
    EXPECT_EQ(row_loss[2], 0.0);
  }
}

TEST(CrossEntropyTest, RefusesTargetsOutsideTheVocabularyAndWrongLengths) {
  ThreadPool pool(1);
  const std::vector<float> logits(6);
  std::vector<double> row_loss(2);
  const auto view = dense_view(logits.data(), {2, 3});
  for (const std::vector<std::int32_t>& targets :
       {std::vector<std::int32_t>{0, 3}, {-2, 0}, {0}, {0, 1, 2}}) {
    const auto loss = cross_entropy_forward(view, targets, row_loss, pool);
    ASSERT_FALSE(loss);
    EXPECT_EQ(loss.error().kind, ErrorKind::kInvalidArgument);
  }
  const auto loss = cross_entropy_forward(view, std::vector<std::int32_t>{0, 3}, row_loss, pool);
  EXPECT_EQ(loss.error().message, "cross_entropy_forward: targets[1] = 3 is outside [-1, vocab_size = 3)");
}

}  // namespace
}  // namespace sightline
