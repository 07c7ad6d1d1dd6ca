#include "bench/goals.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/families.h"

namespace sightline::bench {

namespace {

// First and stretch marks as they stand for a row: memory's speed decides between two pairs.
std::pair<double, double> marks(const Row& row, const Goal& goal) {
  const bool is_fast = row.limit == Limit::kBandwidth && row.limit_rate() > kFastMemory;
  if (is_fast && goal.first_fast > 0.0) return {goal.first_fast, goal.stretch_fast};
  return {goal.first, goal.stretch};
}

bool meets(double figure, double mark, Sense sense) {
  return sense == Sense::kAtLeast ? figure >= mark : figure <= mark;
}

std::string number(Limit limit, double x) {
  if (limit == Limit::kSeconds && x < 1e-3) return fmt::format("{:.3g} us", x * 1e6);
  if (limit == Limit::kSeconds) return fmt::format("{:.3g} s", x);
  return fmt::format("{:.2f}", x);
}

}  // namespace

const Goal* goal_of(std::string_view row_name) {
  for (const Goal& goal : goals()) {
    if (matches_glob(goal.rows, row_name)) return &goal;
  }
  return nullptr;
}

std::vector<std::string> marks_without_row() {
  std::vector<std::string> patterns;
  for (const Goal& goal : goals()) {
    const auto fits = [&](const RowCase& row) { return goal_of(row.name) == &goal; };
    const bool has_row = std::ranges::any_of(
        row_families(), [&](const RowFamily& family) { return std::ranges::any_of(family.rows(), fits); });
    if (!has_row) patterns.emplace_back(goal.rows);
  }
  return patterns;
}

Verdict judge(const Row& row, const Goal* goal) {
  if (goal == nullptr) return Verdict::kNoMark;
  if (!goal->rival.empty()) return Verdict::kByPeers;
  if (!row.measured) return Verdict::kNotMeasured;
  if (row.limit != Limit::kCount && row.num_steady() < kLeastSteadyRuns) return Verdict::kNotMeasured;
  const auto [first, stretch] = marks(row, *goal);
  const double figure = row.figure();
  if (meets(figure, stretch, goal->sense)) return Verdict::kStretch;
  return meets(figure, first, goal->sense) ? Verdict::kFirst : Verdict::kShort;
}

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kNoMark:
      return "";
    case Verdict::kStretch:
      return "stretch";
    case Verdict::kFirst:
      return "first";
    case Verdict::kShort:
      return "SHORT";
    case Verdict::kNotMeasured:
      return "not measured";
    case Verdict::kByPeers:
      return "by bench/peers";
  }
  return "";
}

std::string mark_text(const Row& row, const Goal& goal) {
  if (!goal.rival.empty()) return fmt::format("{:.1f} ({:.1f}) x {}", goal.first, goal.stretch, goal.rival);
  const auto [first, stretch] = marks(row, goal);
  return fmt::format("{} {} ({})", goal.sense == Sense::kAtLeast ? ">=" : "<=", number(row.limit, first),
                     number(row.limit, stretch));
}

}  // namespace sightline::bench
