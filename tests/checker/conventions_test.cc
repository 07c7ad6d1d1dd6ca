// What a library documents is no fault of whoever follows it, and stays one of everyone else.
#include "sightline/checker/conventions.h"

#include <gtest/gtest.h>

#include "sightline/faults/fault_table.h"

namespace sightline::checker {
namespace {

Report fault_report(std::string slug, double keys) {
  Report report;
  report.verdict = Verdict::kFault;
  report.faults.push_back(
      {.slug = std::move(slug), .variant = "", .what = "?", .parameters = {{"keys", keys, ""}}});
  return report;
}

TEST(ConventionsTest, ADocumentedWayIsAConvention) {
  Report report = fault_report("mask.top_left_alignment", 0);
  ASSERT_TRUE(apply_conventions("torch", report));
  EXPECT_EQ(report.verdict, Verdict::kConvention);
  EXPECT_EQ(exit_code(report.verdict), 0);
  EXPECT_NE(report.faults.front().fix.find("causal_lower_right"), std::string::npos);
}

TEST(ConventionsTest, OnlyThatLibraryAndThatParameter) {
  Report other_library = fault_report("mask.top_left_alignment", 0);
  ASSERT_TRUE(apply_conventions("jax", other_library));
  EXPECT_EQ(other_library.verdict, Verdict::kFault);
  Report one_more = fault_report("mask.window_off_by_one", 1);
  ASSERT_TRUE(apply_conventions("jax", one_more));
  EXPECT_EQ(one_more.verdict, Verdict::kConvention);
  Report two_more = fault_report("mask.window_off_by_one", 2);
  ASSERT_TRUE(apply_conventions("jax", two_more));
  EXPECT_EQ(two_more.verdict, Verdict::kFault);
}

TEST(ConventionsTest, TwoFaultsTogetherAreNoConvention) {
  Report report = fault_report("mask.top_left_alignment", 0);
  report.faults.push_back(report.faults.front());
  ASSERT_TRUE(apply_conventions("torch", report));
  EXPECT_EQ(report.verdict, Verdict::kFault);
}

TEST(ConventionsTest, AnUnknownLibraryIsRefusedWithTheKnownOnes) {
  Report report;
  const auto refused = apply_conventions("tourch", report);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("torch, onnx, flash_attn, jax"), std::string::npos);
}

TEST(ConventionsTest, EachIsAFaultOfTheTable) {
  for (const Convention& convention : conventions()) {
    EXPECT_TRUE(parse_fault(convention.slug)) << convention.slug;
  }
}

}  // namespace
}  // namespace sightline::checker
