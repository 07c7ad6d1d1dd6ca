// The limits of the machine in this minute, and the timing of a row between two looks at them.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/row.h"
#include "sightline/base/aligned_buffer.h"

namespace sightline::bench {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double calibrate(const Bench& bench, const Row& row) {
  switch (row.limit) {
    case Limit::kPeak:
      return calibrate_peak(bench);
    case Limit::kBandwidth:
      return calibrate_bandwidth(bench, kMemoryBytes);
    case Limit::kSeconds:
      break;
  }
  return row.limit_before;
}

}  // namespace

double Row::fraction() const {
  if (limit == Limit::kSeconds) return limit_before > 0.0 ? median() / limit_before : 0.0;
  const double most = std::max(limit_before, limit_after);
  return most > 0.0 ? rate() / most : 0.0;
}

bool Row::steady() const {
  return std::abs(limit_before - limit_after) < 0.05 * std::max(limit_before, limit_after) ||
         limit == Limit::kSeconds;
}

double calibrate_peak(const Bench& bench) {
  constexpr std::int64_t kSteps = 400000;  // about 2 ms of 24 independent multiply-adds a step
  const int threads = bench.pool->num_threads();
  std::vector<double> operations(static_cast<std::size_t>(threads));
  double best = 0.0;
  for (int i = 0; i < 15; ++i) {
    const double start = now();
    bench.pool->parallel_for(threads, [&](std::int64_t item, int) {
      operations[static_cast<std::size_t>(item)] = bench.table->calibrate_peak(kSteps);
    });
    const double seconds = now() - start;
    double total = 0.0;
    for (const double x : operations) total += x;
    best = std::max(best, total / seconds);
  }
  return best;
}

double calibrate_bandwidth(const Bench& bench, std::size_t bytes) {
  static AlignedBuffer<float> memory;  // kept: the rows between two calibrations find the same machine
  const std::size_t size = bytes / sizeof(float);
  if (memory.size() < size) {
    memory.reserve_discard(size);
    std::fill_n(memory.data(), size, 1.0F);
  }
  constexpr std::int64_t kPieces = 64;
  std::vector<float> sums(kPieces);
  double best = 0.0;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    bench.pool->parallel_for(kPieces, [&](std::int64_t piece, int) {
      const std::size_t length = size / kPieces;
      sums[static_cast<std::size_t>(piece)] =
          bench.table->read_all(memory.data() + static_cast<std::size_t>(piece) * length, length);
    });
    best = std::max(best, static_cast<double>(bytes) / (now() - start));
  }
  return best;
}

void measure(const Bench& bench, Row row, const std::function<void()>& body) {
  body();
  row.limit_before = calibrate(bench, row);
  for (int i = 0; i < bench.repeats; ++i) {
    const double start = now();
    body();
    row.seconds.push_back(now() - start);
  }
  row.limit_after = calibrate(bench, row);
  std::sort(row.seconds.begin(), row.seconds.end());
  bench.report(row);
}

}  // namespace sightline::bench
