#include "sightline/base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace sightline {

namespace {
// Polls before sleeping: decode makes hundreds of short loops per token, and a futex wake costs
// several microseconds. About 20 us at 2 to 4 GHz.
constexpr int kSpins = 4000;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

struct ThreadPool::Impl {
  int num_threads = 1;
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<int> num_busy{0};
  bool stopping = false;

  // The loop being run; written before `generation` is raised.
  const std::function<void(std::int64_t, int)>* body = nullptr;
  std::int64_t num_items = 0;
  std::atomic<std::int64_t> next_item{0};
  std::exception_ptr error;

  void run_items(int thread_idx) {
    try {
      for (;;) {
        const std::int64_t item = next_item.fetch_add(1, std::memory_order_relaxed);
        if (item >= num_items) return;
        (*body)(item, thread_idx);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next_item.store(num_items, std::memory_order_relaxed);
    }
  }

  void work(int thread_idx) {
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation.load(std::memory_order_acquire) == seen; ++i) pause_cpu();
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stopping || generation.load(std::memory_order_relaxed) != seen; });
        if (stopping) return;
        seen = generation.load(std::memory_order_relaxed);
      }
      run_items(thread_idx);
      if (num_busy.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
  try {
    for (int i = 1; i < num_threads; ++i) {
      impl_->workers.reserve(impl_->workers.size() + 1);
      impl_->workers.emplace_back([this, i] { impl_->work(i); });
    }
  } catch (const std::exception&) {
    // The system refuses more threads or their memory. Results do not depend on the number, so go on.
  }
  impl_->num_threads = static_cast<int>(impl_->workers.size()) + 1;
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  for (auto& worker : impl_->workers) worker.join();
}

int ThreadPool::num_threads() const { return impl_->num_threads; }

void ThreadPool::parallel_for(std::int64_t num_items, const std::function<void(std::int64_t, int)>& body) {
  if (num_items <= 0) return;
  if (impl_->workers.empty() || num_items == 1) {
    for (std::int64_t i = 0; i < num_items; ++i) body(i, 0);
    return;
  }
  Impl& p = *impl_;
  {
    const std::lock_guard lock(p.mutex);
    p.body = &body;
    p.num_items = num_items;
    p.next_item.store(0, std::memory_order_relaxed);
    p.error = nullptr;
    p.num_busy.store(static_cast<int>(p.workers.size()), std::memory_order_relaxed);
    p.generation.fetch_add(1, std::memory_order_release);
  }
  p.wake.notify_all();
  p.run_items(0);
  for (int i = 0; i < kSpins && p.num_busy.load(std::memory_order_acquire) != 0; ++i) pause_cpu();
  {
    std::unique_lock lock(p.mutex);
    p.done.wait(lock, [&] { return p.num_busy.load(std::memory_order_acquire) == 0; });
    p.body = nullptr;
  }
  if (p.error) std::rethrow_exception(p.error);
}

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int n = CPU_COUNT(&set);
  return n < 1 ? 1 : n;
}

}  // namespace sightline
