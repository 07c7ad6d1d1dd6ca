// A persistent pool for loops over independent items. Which thread runs an item never changes a
// result: items own what they write, and nothing is reduced across threads here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace sightline {

/// `num_threads` workers including the calling thread; 1 means no extra thread. Any count is
/// allowed, also above the number of cores; where the system refuses threads the pool has fewer.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const;

  /// Runs body(item_idx, thread_idx) for item_idx in [0, num_items), thread_idx in [0, num_threads).
  /// Items are taken in ascending order from one counter, so put heavy ones first. Returns when all
  /// are done; memory written by the items is visible to the caller. The first exception thrown by a
  /// body is rethrown here after all items that had started have ended. Not reentrant: a body must
  /// not call it. Cost: a few microseconds to wake the workers; no allocation.
  void parallel_for(std::int64_t num_items,
                    const std::function<void(std::int64_t item_idx, int thread_idx)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads that this process may use (its CPU affinity), at least 1.
[[nodiscard]] int available_threads();

}  // namespace sightline
