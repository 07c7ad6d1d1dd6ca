// What a family of rows is given to measure with: threads, kernels, calibrations and the timing of a body
// between two of them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "bench/row.h"
#include "sightline/base/error.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kernels/kernel_table.h"
#include "sightline/kernels/peak_loops.h"

namespace sightline::bench {

struct Bench {
  ThreadPool* pool = nullptr;
  const kernels::KernelTable* table = nullptr;
  kernels::PeakLoop bf16_peak;  ///< empty where the instruction set has none
  kernels::PeakLoop int8_peak;
  int runs = 1;              ///< of each row; a mark is judged on 5
  int repeats = 7;           ///< of each run
  double run_seconds = 2.0;  ///< a run ends once it took so long, after the least number of repeats
  std::string model_path;    ///< empty: rows that need a model are not measured
  std::string program_path;  ///< this program
  std::function<void(const Row&)> report;
  std::function<void()> before_run;  ///< null, or called before each run: others may run meanwhile
};

/// Multiply-adds in registers on all threads, operations a second. `limit`: kPeak, kPeakBf16, kPeakInt8; 0
/// where the CPU or the chosen instruction set has none.
[[nodiscard]] double calibrate_peak(const Bench& bench, Limit limit = Limit::kPeak);
/// Reads of `bytes` in all by all threads, bytes a second; best of three passes (more where they are short).
[[nodiscard]] double calibrate_bandwidth(const Bench& bench, std::size_t bytes);
/// The calibration that a row of this limit is held against.
[[nodiscard]] double calibrate(const Bench& bench, Limit limit);

/// Bytes of the second and third cache as the system reports them; 0 where it does not.
[[nodiscard]] std::size_t level2_bytes();
[[nodiscard]] std::size_t level3_bytes();
/// The working set that stands for memory: 8 times the third cache, at most a quarter of the memory that is
/// free, at least 64 MiB. Fixed at the first call.
[[nodiscard]] std::size_t memory_bytes();

/// Runs `body` to warm up, then `bench.runs` times [calibration, repeats, calibration], and reports the row.
/// A body shorter than 2 ms is run several times a repeat.
void measure(const Bench& bench, Row row, const std::function<void()>& body);
/// The same with `reference` timed in turn: body, reference, body, reference. The row's limit is kReference.
void measure_against(const Bench& bench, Row row, const std::function<void()>& body,
                     const std::function<void()>& reference);
/// Reports a row that could not be measured, with the reason.
void report_unmeasured(const Bench& bench, Row row, std::string reason);

}  // namespace sightline::bench
