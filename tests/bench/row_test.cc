#include "bench/row.h"

#include <gtest/gtest.h>

#include "bench/made_up_row.h"

namespace sightline::testing {
namespace {

using bench::Limit;
using bench::Row;

TEST(BenchRowTest, MedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(bench::median({}), 0.0);
  EXPECT_EQ(bench::median({3.0, 1.0, 2.0}), 2.0);
  EXPECT_EQ(bench::median({4.0, 1.0, 2.0, 3.0}), 2.5);
}

TEST(BenchRowTest, ARunIsSteadyBelowFivePercentOfTheHigherCalibration) {
  EXPECT_TRUE(made_up_run(100.0, 95.1, 1.0).steady());
  EXPECT_TRUE(made_up_run(95.1, 100.0, 1.0).steady());
  EXPECT_FALSE(made_up_run(100.0, 95.0, 1.0).steady());
  EXPECT_FALSE(made_up_run(95.0, 100.0, 1.0).steady());
}

TEST(BenchRowTest, FractionIsOfTheHigherCalibration) {
  const Row row = made_up_row("r", {made_up_run(98.0, 100.0, 2.0)});
  EXPECT_DOUBLE_EQ(row.figure(), 0.5);
  EXPECT_DOUBLE_EQ(row.rate(), 50.0);
  EXPECT_DOUBLE_EQ(row.limit_rate(), 100.0);
}

TEST(BenchRowTest, OnlySteadyRunsCountWhereThereAreAny) {
  Row row = made_up_row(
      "r", {made_up_run(100.0, 50.0, 1.0), made_up_run(100.0, 100.0, 2.0), made_up_run(100.0, 50.0, 1.0)});
  EXPECT_EQ(row.num_steady(), 1);
  EXPECT_DOUBLE_EQ(row.figure(), 0.5);
  EXPECT_DOUBLE_EQ(row.median_seconds(), 2.0);
  EXPECT_DOUBLE_EQ(row.minimum_seconds(), 1.0);
  row.runs.erase(row.runs.begin() + 1);
  EXPECT_DOUBLE_EQ(row.figure(), 1.0);
}

TEST(BenchRowTest, LeastTimeIsOfAllRunsSteadyOrNot) {
  const Row row = made_up_row(
      "r", {made_up_run(100.0, 100.0, 2.0), made_up_run(100.0, 50.0, 1.0), made_up_run(100.0, 100.0, 3.0)});
  EXPECT_DOUBLE_EQ(row.minimum_seconds(), 1.0);
  EXPECT_EQ(made_up_row("r", {}).minimum_seconds(), 0.0);
}

TEST(BenchRowTest, RatioToAReferenceIsOfTimesOverTheShareOrOfSpeeds) {
  Row row = made_up_row("r", {made_up_run(1.0, 1.0, 3.0, 10.0)});
  row.limit = Limit::kReference;
  row.share = 0.25;  // at the reference's speed it would take 2.5
  EXPECT_DOUBLE_EQ(row.figure(), 1.2);
  row.is_speed = true;
  EXPECT_DOUBLE_EQ(row.figure(), 1.0 / 1.2);
}

TEST(BenchRowTest, SecondsAndCountsAreFiguresThemselves) {
  Row row = made_up_row("r", {made_up_run(1.0, 1.0, 3.0)});
  row.limit = Limit::kSeconds;
  EXPECT_DOUBLE_EQ(row.figure(), 3.0);
  row.limit = Limit::kCount;
  row.counted = 1.04;
  EXPECT_DOUBLE_EQ(row.figure(), 1.04);
}

}  // namespace
}  // namespace sightline::testing
