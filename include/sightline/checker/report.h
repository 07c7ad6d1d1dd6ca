// What the checker says: a verdict in words, the faults it names with their evidence, and what to try next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/json.h"

namespace sightline::checker {

enum class Verdict : std::uint8_t {
  kAgrees,      ///< equal to the declared meaning, to the rounding of f32
  kRounding,    ///< differs by what the type, depth and length explain
  kFault,       ///< a fault by name
  kConvention,  ///< follows a documented convention other than the declared one
  kAmbiguous,   ///< several faults explain this input equally well
  kUnknown,     ///< differs, and no known fault explains it
  kBroken,      ///< crashed, hung, gave NaN or other shapes, or other answers each time
};
[[nodiscard]] std::string_view to_string(Verdict verdict);
/// 0 for agrees, rounding and convention; 1 for the others.
[[nodiscard]] int exit_code(Verdict verdict);

struct MeasuredParameter {
  std::string name;
  double value = 0;
  std::string what;
};

/// A fault that explains what was seen.
struct NamedFault {
  std::string slug;     ///< the kind's name in the catalogue, "mask.top_left_alignment"
  std::string variant;  ///< which form; empty: the only one
  std::string what;     ///< one line
  std::vector<MeasuredParameter> parameters;
  /// Largest difference from its prediction, in units of the rounding bound: at most 1 explains everything.
  double misfit = 0;
  /// On at least two probes every other hypothesis lies beyond ten times the bound.
  bool certain = false;
  std::string idiom;  ///< the code that usually causes it
  std::string fix;
};

/// One line of the reasoning: a measurement or a comparison, with its figure. `what` is a whole sentence that
/// has the figure with its unit and ends with a full stop, or what is counted ("documents").
struct Evidence {
  std::string what;
  double value = 0;
};
/// A sentence as it is; else the figure before what it counts.
[[nodiscard]] std::string sentence(const Evidence& evidence);
/// "lies 4.1e+05 times the rounding bound away": how far a prediction is from what was seen. Infinite: where
/// one of them has a number, the other has none.
[[nodiscard]] std::string lies_away(double misfit);

/// The first element, in reading order, that differs beyond rounding.
struct Difference {
  std::string tensor;  ///< "out", "lse", "d_k", ...
  std::vector<std::int64_t> index;
  double expected = 0;
  double got = 0;
};

/// Who sees whom: what was declared, and what one-hot values showed. 1 = visible.
struct VisibleSet {
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  std::vector<std::uint8_t> declared;  ///< [q_len, kv_len]
  std::vector<std::uint8_t> observed;  ///< [q_len, kv_len], by any head

  [[nodiscard]] std::int64_t num_different() const;
};

/// Queries and keys that an InsideView shows at most.
inline constexpr std::int64_t kMaxInside = 96;

/// One query head from inside, for the page: its weights, and the rotation of each pair, as declared and as
/// the faults named have them.
struct InsideView {
  int head = 0;
  std::int64_t query_begin = 0, num_queries = 0;
  std::int64_t key_begin = 0, num_keys = 0;
  std::vector<double> declared;   ///< [num_queries, num_keys]
  std::vector<double> explained;  ///< the same under the faults; empty: nothing is named
  std::string explained_by;       ///< the faults in the table's form
  std::vector<double> angles;     ///< [pairs], radians from one position to the next; empty: no rotation
  std::vector<double> explained_angles;
};

/// A hypothesis with the misfit of its best prediction.
struct RankedHypothesis {
  std::string what;  ///< its text in the fault table's form, or the declared meaning
  double misfit = 0;
};

/// Hypotheses that a report lists at most.
inline constexpr std::size_t kMaxRanked = 12;

struct Report {
  Verdict verdict = Verdict::kUnknown;
  std::string summary;             ///< the verdict in one line of words
  std::vector<NamedFault> faults;  ///< best first; all that fit when ambiguous
  std::vector<Evidence> evidence;
  std::vector<RankedHypothesis>
      ranked;  ///< what was tried, best first, at most kMaxRanked; empty when all agrees
  /// Largest misfit of each query row from the declared meaning, in the observation that differs most.
  std::vector<double> row_errors;
  std::string next_probe;  ///< what would tell the remaining hypotheses apart; empty: nothing to ask
  std::optional<Difference> first_difference;
  std::optional<VisibleSet> visible_set;  ///< where it was measured
  std::optional<InsideView> inside;       ///< of the observation that differs most; on the page alone
  std::vector<std::string> blind_spots;   ///< what was declared and not probed, and why
};

/// The report on a subject that failed when `step` ("asked the probe 'whole'"), and how.
[[nodiscard]] Report broken_report(std::string_view step, std::string_view why);

inline constexpr int kReportSchema = 1;
[[nodiscard]] Json to_json(const Report& report);
/// For people: the first line is the summary.
[[nodiscard]] std::string to_text(const Report& report);

}  // namespace sightline::checker
