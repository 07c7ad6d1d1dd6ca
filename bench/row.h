// One row of the benchmark: what ran, how long it took in each run, and the one figure that it is judged by.
// Knows no clock and no kernel; tests make rows up.
#pragma once

#include <string>
#include <vector>

namespace sightline::bench {

/// What a row's figure is a fraction of.
enum class Limit {
  kPeak,       ///< f32 multiply-adds of the row's instruction set; work in floating point operations
  kPeakBf16,   ///< bf16 multiply-adds (`vdpbf16ps`); work in floating point operations
  kPeakInt8,   ///< int8 multiply-adds (`vpdpbusd`); work in operations
  kBandwidth,  ///< reads of memory beyond the last cache; work in bytes
  kReference,  ///< another computation, timed in turn with it
  kSeconds,    ///< nothing: the figure is a time
  kCount,      ///< nothing: the figure is counted, not timed
};

/// One run: repeats between two calibrations.
struct Run {
  double limit_before = 0.0;  ///< operations or bytes a second; where the limit is neither: the f32 peak
  double limit_after = 0.0;
  std::vector<double> seconds;            ///< one a repeat, ascending
  std::vector<double> reference_seconds;  ///< kReference: of the other computation, ascending

  /// The calibration moved by less than 5 % across the run (design 13): only then does the run count.
  [[nodiscard]] bool steady() const;
};

struct Row {
  std::string name;
  std::string what;  ///< shapes in words
  Limit limit = Limit::kPeak;
  double work = 0.0;  ///< floating point operations of useful work, or bytes; 0: none
  /// kReference: the part of the reference's time that this would take at the same speed.
  double share = 1.0;
  bool is_speed = false;  ///< kReference: the figure is a ratio of speeds, else of times
  double tokens = 0.0;    ///< tokens of one repeat, for whole models
  std::vector<Run> runs;
  double counted = 0.0;  ///< kCount: the figure
  std::string note;      ///< what was checked, or why the row was not measured
  bool measured = true;

  [[nodiscard]] int num_steady() const;
  /// Median of the runs' median times: of the steady runs where there are any.
  [[nodiscard]] double median_seconds() const;
  [[nodiscard]] double minimum_seconds() const;
  /// work / median_seconds.
  [[nodiscard]] double rate() const;
  [[nodiscard]] double tokens_per_second() const;
  /// Operations or bytes a second that the runs were held against: the median of max(before, after).
  [[nodiscard]] double limit_rate() const;
  /// The figure of one run: fraction of the higher of its two calibrations; ratio to the reference; seconds.
  [[nodiscard]] double figure(const Run& run) const;
  /// Median of figure(run) over the steady runs, over all where none is steady.
  [[nodiscard]] double figure() const;
};

/// The middle of `values`, of an even count the mean of the two; 0 of none.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace sightline::bench
