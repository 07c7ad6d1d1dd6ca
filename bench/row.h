// One row of the benchmark: what ran, how long it took, and which part of the machine's limit of the same
// minute that is. Rows are checked against a slower, independent computation before they are timed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline::bench {

/// What limits a row; its work is counted in the unit of that limit.
enum class Limit { kPeak, kBandwidth, kSeconds };

struct Row {
  std::string name;
  std::string what;  ///< shapes in words
  Limit limit = Limit::kPeak;
  double work = 0.0;          ///< floating point operations of useful work, or bytes; 0 for kSeconds
  double limit_before = 0.0;  ///< operations or bytes a second, calibrated right before; seconds for kSeconds
  double limit_after = 0.0;
  std::vector<double> seconds;  ///< one a repeat, ascending
  std::string note;             ///< what was checked, or why the row was not measured
  bool measured = true;

  [[nodiscard]] double median() const { return seconds.empty() ? 0.0 : seconds[seconds.size() / 2]; }
  [[nodiscard]] double rate() const { return median() > 0.0 ? work / median() : 0.0; }
  /// Of the higher of the two calibrations; for kSeconds: the median over the mark.
  [[nodiscard]] double fraction() const;
  /// The calibration moved by less than 5 % across the row.
  [[nodiscard]] bool steady() const;
};

struct Bench {
  ThreadPool* pool = nullptr;
  const kernels::KernelTable* table = nullptr;
  int repeats = 7;
  std::string model_path;    ///< empty: rows that need a model are not measured
  std::string program_path;  ///< this program
  std::function<void(const Row&)> report;
};

/// Multiply-adds in registers on all threads, floating point operations a second.
[[nodiscard]] double calibrate_peak(const Bench& bench);
/// Reads of `bytes` in all by all threads, bytes a second; best of three passes.
[[nodiscard]] double calibrate_bandwidth(const Bench& bench, std::size_t bytes);
/// The working set that stands for memory.
inline constexpr std::size_t kMemoryBytes = std::size_t{512} << 20;

/// Runs `body` once to warm up, then `repeats` times between two calibrations, and reports the row.
void measure(const Bench& bench, Row row, const std::function<void()>& body);

[[nodiscard]] Result<void> run_attention_rows(const Bench& bench);
[[nodiscard]] Result<void> run_linear_rows(const Bench& bench);
[[nodiscard]] Result<void> run_model_rows(const Bench& bench);
[[nodiscard]] Result<void> run_program_rows(const Bench& bench);

}  // namespace sightline::bench
