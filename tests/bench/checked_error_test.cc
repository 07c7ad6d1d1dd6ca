#include "bench/checked_error.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sightline::testing {
namespace {

using bench::CheckedError;

TEST(BenchCheckedErrorTest, OursMayErrAFewTimesAsMuchAsThePlainMethodAndNoMore) {
  CheckedError error;
  error.add(1.0 + 2.9e-3, 1.0 + 1e-3, 1.0, 4.0);
  EXPECT_NEAR(error.ours, 2.9e-3 / 4, 1e-12);
  EXPECT_NEAR(error.plain, 1e-3 / 4, 1e-12);
  EXPECT_LT(error.rounding, 1e-6);
  EXPECT_TRUE(error.holds(3.0));
  EXPECT_FALSE(error.holds(2.0));
}

TEST(BenchCheckedErrorTest, TheLargestOfAllEntriesCounts) {
  CheckedError error;
  error.add(1.5, 1.0, 1.0, 1.0);
  error.add(1.0, 1.0, 1.0, 1.0);
  EXPECT_FALSE(error.holds(2.0));
}

TEST(BenchCheckedErrorTest, RoundingAloneHolds) {
  CheckedError error;
  error.add(static_cast<double>(0.1F), 0.1, 0.1, 1.0);
  EXPECT_GT(error.ours, 0.0);
  EXPECT_TRUE(error.holds(2.0));
}

TEST(BenchCheckedErrorTest, WhatNothingReachesIsExactlyZeroAndNanNeverHolds) {
  CheckedError error;
  error.add(0.0, 0.0, 0.0, 0.0);
  EXPECT_TRUE(error.holds(2.0));
  error.add(1e-30, 0.0, 0.0, 0.0);
  EXPECT_FALSE(error.holds(2.0));
  CheckedError nan;
  nan.add(NAN, 1.0, 1.0, 1.0);
  EXPECT_FALSE(nan.holds(2.0));
  CheckedError unseen;
  unseen.add(NAN, 0.0, 0.0, 0.0);
  EXPECT_FALSE(unseen.holds(2.0));
}

}  // namespace
}  // namespace sightline::testing
