#include "bench/goals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "bench/families.h"
#include "bench/made_up_row.h"

namespace sightline::testing {
namespace {

using bench::Goal;
using bench::Limit;
using bench::Row;
using bench::Sense;
using bench::Verdict;

constexpr Goal kAtLeast{"r", 0.5, 0.8};
constexpr Goal kAtMost{"r", 1.15, 1.08, Sense::kAtMost};

// A run whose figure is `figure`, in a calibration that stood still or moved by half.
bench::Run steady(double figure) { return made_up_run(100.0, 100.0, 1.0 / figure); }
bench::Run moved(double figure) { return made_up_run(100.0, 50.0, 1.0 / figure); }

TEST(BenchGoalsTest, ThreeOfFiveRunsMustCount) {
  EXPECT_EQ(
      judge(made_up_row("r", {steady(0.9), steady(0.9), moved(0.9), moved(0.9), moved(0.9)}), &kAtLeast),
      Verdict::kNotMeasured);
  EXPECT_EQ(
      judge(made_up_row("r", {steady(0.9), steady(0.9), steady(0.9), moved(0.9), moved(0.9)}), &kAtLeast),
      Verdict::kStretch);
}

TEST(BenchGoalsTest, MedianOfTheRunsThatCountDecides) {
  // Of all five the median would be 0.9, of the best run the same; of the three that count it is 0.4.
  EXPECT_EQ(
      judge(made_up_row("r", {steady(0.4), moved(0.9), steady(0.9), moved(0.9), steady(0.3)}), &kAtLeast),
      Verdict::kShort);
  EXPECT_EQ(
      judge(made_up_row("r", {steady(0.4), moved(0.1), steady(0.6), moved(0.1), steady(0.9)}), &kAtLeast),
      Verdict::kFirst);
}

TEST(BenchGoalsTest, ARatioOfTimesMustStayBelowItsMark) {
  const auto row = [](double ratio) {
    Row r = made_up_row("r", std::vector<bench::Run>(5, made_up_run(1.0, 1.0, ratio, 1.0)));
    r.limit = Limit::kReference;
    return r;
  };
  EXPECT_EQ(judge(row(1.20), &kAtMost), Verdict::kShort);
  EXPECT_EQ(judge(row(1.10), &kAtMost), Verdict::kFirst);
  EXPECT_EQ(judge(row(1.05), &kAtMost), Verdict::kStretch);
}

TEST(BenchGoalsTest, CountsNeedNoRuns) {
  Row row = made_up_row("r", {});
  row.limit = Limit::kCount;
  row.counted = 1.2;
  EXPECT_EQ(judge(row, &kAtMost), Verdict::kShort);
  row.counted = 1.1;
  EXPECT_EQ(judge(row, &kAtMost), Verdict::kFirst);
}

TEST(BenchGoalsTest, FastMemoryHasMarksOfItsOwn) {
  const Goal goal{"r", 0.82, 0.90, Sense::kAtLeast, 0.65, 0.80};
  const auto row = [](double bandwidth) {
    Row r = made_up_row("r", std::vector<bench::Run>(5, made_up_run(bandwidth, bandwidth, 1.0)));
    r.limit = Limit::kBandwidth;
    r.work = 0.7 * bandwidth;
    return r;
  };
  EXPECT_EQ(judge(row(30e9), &goal), Verdict::kShort);
  EXPECT_EQ(judge(row(60e9), &goal), Verdict::kFirst);
  EXPECT_EQ(mark_text(row(30e9), goal), ">= 0.82 (0.90)");
  EXPECT_EQ(mark_text(row(60e9), goal), ">= 0.65 (0.80)");
}

TEST(BenchGoalsTest, NoMarkNotMeasuredAndRivalsAreSaid) {
  Row row = made_up_row("r", std::vector<bench::Run>(5, steady(0.9)));
  EXPECT_EQ(judge(row, nullptr), Verdict::kNoMark);
  const Goal rival{"r", 1.6, 2.2, Sense::kAtLeast, 0, 0, "llama.cpp"};
  EXPECT_EQ(judge(row, &rival), Verdict::kByPeers);
  row.measured = false;
  EXPECT_EQ(judge(row, &kAtLeast), Verdict::kNotMeasured);
}

TEST(BenchGoalsTest, NoLineOfTheTableHidesALaterOne) {
  for (const Goal& goal : bench::goals()) {
    std::string name(goal.rows);
    std::ranges::replace(name, '*', 'x');
    ASSERT_NE(bench::goal_of(name), nullptr) << name;
    EXPECT_EQ(bench::goal_of(name)->rows, goal.rows) << name;
  }
}

TEST(BenchGoalsTest, MarksWithoutARowAreThoseThatNoRowHas) {
  const std::vector<std::string> without = bench::marks_without_row();
  for (const char* present : {"f32-dense-d64-*", "decode-*-ragged16-*", "tg64"}) {
    EXPECT_EQ(std::count(without.begin(), without.end(), present), 0) << present;
  }
  std::set<std::string_view> of_rows;
  for (const bench::RowFamily& family : bench::row_families()) {
    for (const bench::RowCase& row : family.rows()) {
      if (const Goal* goal = bench::goal_of(row.name)) of_rows.insert(goal->rows);
    }
  }
  for (const Goal& goal : bench::goals()) {
    EXPECT_NE(std::count(without.begin(), without.end(), goal.rows) == 1, of_rows.contains(goal.rows))
        << goal.rows;
  }
}

TEST(BenchGoalsTest, StretchIsNoEasierThanFirst) {
  for (const Goal& goal : bench::goals()) {
    if (goal.sense == Sense::kAtLeast) {
      EXPECT_GE(goal.stretch, goal.first) << goal.rows;
      EXPECT_GE(goal.stretch_fast, goal.first_fast) << goal.rows;
    } else {
      EXPECT_LE(goal.stretch, goal.first) << goal.rows;
    }
  }
}

TEST(BenchGoalsTest, EachRowHasTheMarkOfItsKind) {
  const auto first = [](std::string_view name) {
    const Goal* goal = bench::goal_of(name);
    return goal == nullptr ? -1.0 : goal->first;
  };
  EXPECT_EQ(first("f32-dense-d64-T512"), 0.86);
  EXPECT_EQ(first("f32-causal-d128-T4096"), 0.87);
  EXPECT_EQ(first("avx2-f32-causal-d64-T2048"), 0.75);
  EXPECT_EQ(first("mask-documents-f32-d128-T16384"), 1.15);
  EXPECT_EQ(first("blocks64-10-f32-d64-T4096"), 1.35);
  EXPECT_EQ(first("chunk512-bf16-paged-d128-k4096"), 0.79);
  EXPECT_EQ(first("chunk512-paged-over-contiguous-k4096"), 1.03);
  EXPECT_EQ(first("decode-bf16-d128-k16384"), 0.82);
  EXPECT_EQ(first("decode-f32-d128-k16384"), -1.0);
  EXPECT_EQ(first("tg64 @ d4096"), 2.0);
  EXPECT_EQ(first("backward-f32-causal-d64-T2048"), 0.84);
}

}  // namespace
}  // namespace sightline::testing
