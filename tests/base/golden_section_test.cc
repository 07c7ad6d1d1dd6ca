#include "sightline/base/golden_section.h"

#include <gtest/gtest.h>

#include <functional>

namespace sightline {
namespace {

TEST(GoldenSectionTest, TheLeastOfAValleyIsFoundWithOneEvaluationAStep) {
  int count = 0;
  const auto valley = [&](double x) -> Result<double> {
    ++count;
    return std::abs(x - 2.75);
  };
  const GoldenSection section{-4, 9};
  const GoldenPair<double> first{*valley(section.left()), *valley(section.right())};
  const auto found = narrow(section, first, {.max_steps = 60, .tolerance = 1e-9}, valley, std::less<>{});
  ASSERT_TRUE(found);
  EXPECT_LT(found->first, 1e-8);
  EXPECT_LT(found->second, 1e-8);
  EXPECT_LT(count, 2 + 50);  // 0.618^48 of 13
  count = 0;
  ASSERT_TRUE(narrow(section, first, {.max_steps = 7}, valley, std::less<>{}));
  EXPECT_EQ(count, 7);
}

TEST(GoldenSectionTest, AnErrorEndsIt) {
  const auto failing = [](double) -> Result<double> { return fail(ErrorKind::kInvalidArgument, "no"); };
  EXPECT_FALSE(narrow(GoldenSection{0, 1}, GoldenPair<double>{1, 2}, {}, failing, std::less<>{}));
}

}  // namespace
}  // namespace sightline
