// Losses that a plain computation of its own gives, right and wrong, are explained.
#include "sightline/checker/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sightline/base/rng.h"

namespace sightline::checker {
namespace {

// Three rows of 6 tokens with 5, 2 and 3 targets in two micro-batches: {0, 1}, {2}.
LossObservation step(std::uint64_t seed) {
  LossObservation o;
  o.num_rows = 3;
  o.num_tokens = 6;
  o.vocab_size = 7;
  o.hidden_dim = 4;
  Rng rng(seed);
  for (int i = 0; i < 3 * 6 * 4; ++i) o.hidden.push_back(static_cast<float>(rng.next_normal()));
  for (int i = 0; i < 7 * 4; ++i) o.head.push_back(static_cast<float>(rng.next_normal()));
  o.labels = {0, 2, 1, 3, 2, 4, 1, 4, 0, -100, -100, -100, 5, 2, 6, 2, -100, -100};
  o.input_ids = {0, 2, 1, 3, 2, 4, 1, 4, 0, 6, 6, 6, 5, 2, 6, 2, 6, 6};
  o.micro_batch = {0, 0, 1};
  return o;
}

double nll(const LossObservation& o, int row, int token, std::int64_t target) {
  double sum = 0, own = 0;
  for (std::int64_t t = 0; t < o.vocab_size; ++t) {
    double x = 0;
    for (int c = 0; c < 4; ++c) {
      x += o.hidden[static_cast<std::size_t>((row * 6 + token) * 4 + c)] *
           o.head[static_cast<std::size_t>(t * 4 + c)];
    }
    sum += std::exp(x);
    if (t == target) own = x;
  }
  return std::log(sum) - own;
}

// Sum of losses and number of targets of one row, `shift` ahead.
std::pair<double, int> row_sum(const LossObservation& o, int row, int shift, std::int64_t without = -1) {
  double sum = 0;
  int count = 0;
  for (int i = 0; i + shift < 6; ++i) {
    const std::int64_t label = o.labels[static_cast<std::size_t>(row * 6 + i + shift)];
    if (label == -100 || label == without) continue;
    sum += nll(o, row, i, label);
    ++count;
  }
  return {sum, count};
}

double mean(const LossObservation& o, int shift, std::int64_t without = -1) {
  double sum = 0;
  int count = 0;
  for (int r = 0; r < 3; ++r) {
    const auto [s, n] = row_sum(o, r, shift, without);
    sum += s;
    count += n;
  }
  return sum / count;
}

double micro_means(const LossObservation& o) {
  const auto [a, n] = row_sum(o, 0, 1);
  const auto [b, m] = row_sum(o, 1, 1);
  const auto [c, k] = row_sum(o, 2, 1);
  return ((a + b) / (n + m) + c / k) / 2;
}

Report report_on(double (*loss)(const LossObservation&)) {
  std::vector<LossObservation> steps{step(1), step(2)};
  for (LossObservation& o : steps) o.loss = static_cast<float>(loss(o));
  return check_loss(steps).value();
}

void expect_named(const Report& report, const std::string& slug, const std::string& variant) {
  EXPECT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
  EXPECT_EQ(report.faults[0].slug, slug) << to_text(report);
  EXPECT_EQ(report.faults[0].variant, variant) << to_text(report);
  EXPECT_TRUE(report.faults[0].certain) << to_text(report);
}

TEST(CheckLossTest, TheMeanOverAllTargetsAgrees) {
  const Report report = report_on([](const LossObservation& o) { return mean(o, 1); });
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
}

TEST(CheckLossTest, NormalisationsAreNamed) {
  expect_named(report_on(micro_means), "loss.normalisation", "micro_means");
  expect_named(report_on([](const LossObservation& o) { return 2 * micro_means(o); }), "loss.normalisation",
               "means_added");
  expect_named(report_on([](const LossObservation& o) { return mean(o, 1) / 2; }), "loss.normalisation",
               "divided_twice");
  expect_named(report_on([](const LossObservation& o) { return mean(o, 1) * 10; }), "loss.normalisation",
               "sum");
  expect_named(report_on([](const LossObservation& o) { return mean(o, 1) * 10 / 15; }), "loss.normalisation",
               "all_positions");
  const Report factor = report_on([](const LossObservation& o) { return mean(o, 1) * 1.7; });
  expect_named(factor, "loss.normalisation", "factor");
  EXPECT_NEAR(factor.faults[0].parameters[0].value, 1.7, 1e-5);
}

TEST(CheckLossTest, ShiftsAreMeasured) {
  const Report twice = report_on([](const LossObservation& o) { return mean(o, 2); });
  expect_named(twice, "loss.label_shift", "");
  EXPECT_EQ(twice.faults[0].parameters[0].value, 2);
  const Report none = report_on([](const LossObservation& o) { return mean(o, 0); });
  expect_named(none, "loss.label_shift", "");
  EXPECT_EQ(none.faults[0].parameters[0].value, 0);
}

TEST(CheckLossTest, ScopesAreNamed) {
  const Report by_value = report_on([](const LossObservation& o) { return mean(o, 1, 4); });
  expect_named(by_value, "loss.scope", "by_value");
  EXPECT_EQ(by_value.faults[0].parameters[0].value, 4);
  const Report ignored = report_on([](const LossObservation& o) {
    LossObservation all = o;
    all.labels = o.input_ids;
    return mean(all, 1);
  });
  expect_named(ignored, "loss.scope", "ignored");
}

TEST(CheckLossTest, TwoAtOnceAreNamedTogetherAndTheRestIsUnknown) {
  const Report both = report_on([](const LossObservation& o) {
    const auto [a, n] = row_sum(o, 0, 2);
    const auto [b, m] = row_sum(o, 1, 2);
    const auto [c, k] = row_sum(o, 2, 2);
    return ((a + b) / (n + m) + c / k) / 2;
  });
  ASSERT_EQ(both.faults.size(), 2U) << to_text(both);
  EXPECT_EQ(both.faults[0].slug, "loss.label_shift");
  EXPECT_EQ(both.faults[1].slug, "loss.normalisation");
  const Report other = report_on([](const LossObservation& o) { return mean(o, 1) + 0.3; });
  EXPECT_EQ(other.verdict, Verdict::kUnknown) << to_text(other);
  EXPECT_TRUE(other.faults.empty()) << to_text(other);
}

// d head of the mean of micro-batch means, by differences of the loss.
TEST(CheckLossTest, AGradientOfTheHeadSaysTheSame) {
  LossObservation o = step(3);
  for (std::size_t i = 0; i < o.head.size(); ++i) {
    LossObservation up = o, down = o;
    up.head[i] += 1e-5;
    down.head[i] -= 1e-5;
    o.d_head.push_back(static_cast<float>((micro_means(up) - micro_means(down)) / 2e-5));
  }
  const Report report = check_loss(std::span(&o, 1)).value();
  ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
  EXPECT_EQ(report.faults[0].variant, "micro_means") << to_text(report);
  EXPECT_FALSE(report.faults[0].certain) << to_text(report);
  EXPECT_EQ(report.first_difference->tensor, "d_head");
}

TEST(CheckLossTest, RefusesWhatDoesNotFit) {
  const auto refuses = [](const LossObservation& o, const char* text) {
    const Result<Report> got = check_loss(std::span(&o, 1));
    ASSERT_FALSE(got) << text;
    EXPECT_NE(got.error().message.find(text), std::string::npos) << got.error().message;
  };
  LossObservation o = step(4);
  refuses(o, "nothing was observed");
  o.loss = 1;
  o.labels[3] = 7;
  refuses(o, "label 7 is outside [0, 7)");
  o.labels.pop_back();
  refuses(o, "labels has 17 numbers, expected 18");
  EXPECT_FALSE(check_loss({}));
}

}  // namespace
}  // namespace sightline::checker
