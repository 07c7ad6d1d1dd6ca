// How rows are shown: text and Markdown for people, CSV and JSON for programs. Rows are written as they come;
// JSON is one document at the end.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/goals.h"
#include "bench/row.h"
#include "sightline/base/json.h"

namespace sightline::bench {

enum class Format { kText, kJson, kCsv, kMarkdown };

/// The machine before the rows.
struct Calibration {
  std::string isa;
  std::string description;
  int threads = 0;
  double peak_f32 = 0.0;                              ///< floating point operations a second
  double peak_bf16 = 0.0;                             ///< 0: the instruction set has none
  double peak_int8 = 0.0;                             ///< operations a second
  std::vector<std::pair<std::size_t, double>> reads;  ///< bytes of the working set, bytes a second
};

class Report {
 public:
  /// `with_goals`: each row is judged against its mark.
  Report(Format format, bool with_goals, std::function<void(std::string_view)> write);
  void begin(const Calibration& calibration);
  void add(const Row& row);
  /// `marks_without_row`: patterns of marks whose rows are still to be written; they are not met either.
  void end(const std::vector<std::string>& marks_without_row = {});

  /// Marks that fell short, were not measured or have no row; those that others judge do not count.
  [[nodiscard]] int num_unmet() const { return num_short_ + num_unmeasured_ + num_without_row_; }

 private:
  void add_text(const Row& row);
  void add_csv(const Row& row);
  void add_markdown(const Row& row);
  [[nodiscard]] std::string mark(const Row& row) const;
  [[nodiscard]] std::string_view verdict(const Row& row) const;
  [[nodiscard]] std::string summary() const;

  Format format_;
  bool with_goals_;
  std::function<void(std::string_view)> write_;
  Json document_;
  JsonArray rows_;
  int num_stretch_ = 0, num_first_ = 0, num_short_ = 0, num_unmeasured_ = 0, num_without_row_ = 0;
};

/// "0.86 of the peak", "1.07 x", "1.4 us".
[[nodiscard]] std::string figure_text(const Row& row);
[[nodiscard]] Json row_json(const Row& row);

}  // namespace sightline::bench
