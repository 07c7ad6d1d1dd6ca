// Marks, and how a row is judged against one (design 13): a mark is judged on 5 runs, a run counts if its
// calibration moved by less than 5 %, at least 3 must count, and their median decides. The marks are data, in
// goal_table.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/row.h"

namespace sightline::bench {

inline constexpr int kJudgedRuns = 5;
inline constexpr int kLeastSteadyRuns = 3;
/// Decode has other marks where memory is faster than this, bytes a second.
inline constexpr double kFastMemory = 35e9;

enum class Sense { kAtLeast, kAtMost };

struct Goal {
  std::string_view rows;  ///< a glob over names of rows
  double first = 0.0;     ///< must
  double stretch = 0.0;   ///< aim
  Sense sense = Sense::kAtLeast;
  /// kBandwidth rows where memory reads more than kFastMemory; 0: the same marks.
  double first_fast = 0.0;
  double stretch_fast = 0.0;
  /// Not empty: the mark is a ratio to this program, which bench/peers runs beside ours; bench cannot judge.
  std::string_view rival{};
};

/// Every mark, those of rows that are still to be written among them.
[[nodiscard]] std::span<const Goal> goals();
/// The first goal whose pattern fits; null where the row has no mark.
[[nodiscard]] const Goal* goal_of(std::string_view row_name);

/// Patterns of marks that no row of any family has.
[[nodiscard]] std::vector<std::string> marks_without_row();

enum class Verdict { kNoMark, kStretch, kFirst, kShort, kNotMeasured, kByPeers };
[[nodiscard]] Verdict judge(const Row& row, const Goal* goal);
/// "stretch", "first", "SHORT", "not measured", "by bench/peers", "".
[[nodiscard]] std::string_view to_string(Verdict verdict);
/// ">= 0.86 (0.90)": first and stretch as they stand for this row.
[[nodiscard]] std::string mark_text(const Row& row, const Goal& goal);

}  // namespace sightline::bench
