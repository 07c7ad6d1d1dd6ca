// The limits of the machine in this minute.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "bench/bench.h"
#include "sightline/base/aligned_buffer.h"

namespace sightline::bench {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t reported(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

// Memory that can be had without swapping, what files keep in memory included.
std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  for (std::string unit; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return reported(_SC_AVPHYS_PAGES) * reported(_SC_PAGESIZE);
}

}  // namespace

std::size_t level2_bytes() { return reported(_SC_LEVEL2_CACHE_SIZE); }
std::size_t level3_bytes() { return reported(_SC_LEVEL3_CACHE_SIZE); }

std::size_t memory_bytes() {
  static const std::size_t bytes = [] {
    return std::max(std::min(8 * std::max(level3_bytes(), 64 * kMiB), available_bytes() / 4), 64 * kMiB);
  }();
  return bytes;
}

double calibrate_peak(const Bench& bench, Limit limit) {
  kernels::PeakLoop loop = bench.table->calibrate_peak;
  if (limit == Limit::kPeakBf16) loop = bench.bf16_peak;
  if (limit == Limit::kPeakInt8) loop = bench.int8_peak;
  if (loop == nullptr) return 0.0;
  constexpr std::int64_t kSteps = 200000;  // one to two ms of 24 independent multiply-adds a step
  const int threads = bench.pool->num_threads();
  std::vector<double> operations(static_cast<std::size_t>(threads));
  double best = 0.0;
  for (int i = 0; i < 15; ++i) {
    const double start = now();
    bench.pool->parallel_for(
        threads, [&](std::int64_t item, int) { operations[static_cast<std::size_t>(item)] = loop(kSteps); });
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
  const std::int64_t pieces = bench.pool->num_threads() * std::int64_t{8};
  const std::size_t length = size / static_cast<std::size_t>(pieces);
  std::vector<float> sums(static_cast<std::size_t>(pieces));
  // Passes over a small set are too short for the clock and the threads' waking: each is many.
  const auto passes = std::max<std::size_t>(1, 256 * kMiB / std::max<std::size_t>(bytes, 1));
  double best = 0.0;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    bench.pool->parallel_for(pieces, [&](std::int64_t piece, int) {
      const float* from = memory.data() + static_cast<std::size_t>(piece) * length;
      float sum = 0.0F;
      for (std::size_t pass = 0; pass < passes; ++pass) sum += bench.table->read_all(from, length);
      sums[static_cast<std::size_t>(piece)] = sum;
    });
    const auto read = static_cast<double>(passes * length * sizeof(float)) * static_cast<double>(pieces);
    best = std::max(best, read / (now() - start));
  }
  return best;
}

double calibrate(const Bench& bench, Limit limit) {
  switch (limit) {
    case Limit::kBandwidth:
      return calibrate_bandwidth(bench, memory_bytes());
    case Limit::kPeakBf16:
    case Limit::kPeakInt8:
      return calibrate_peak(bench, limit);
    default:
      return calibrate_peak(bench);
  }
}

}  // namespace sightline::bench
