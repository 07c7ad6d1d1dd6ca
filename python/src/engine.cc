#include "engine.h"

#include <unistd.h>

#include <mutex>
#include <vector>

namespace sightline::python {

struct EngineLease::Engine {
  explicit Engine(int threads) : num_threads(threads), pool(threads), context(pool) {}
  int num_threads;
  pid_t owner = getpid();
  ThreadPool pool;
  AttentionContext context;
};

namespace {

constexpr std::size_t kMaxIdle = 8;  // more than that at once are made and thrown away

struct Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<EngineLease::Engine>> engines;
};

// Never destroyed: the interpreter may still run calls when static objects go.
Idle& idle() {
  static Idle* const all = new Idle;
  return *all;
}

}  // namespace

EngineLease::EngineLease(int num_threads) {
  const int wanted = num_threads > 0 ? num_threads : available_threads();
  {
    const std::lock_guard lock(idle().mutex);
    auto& engines = idle().engines;
    for (std::size_t i = engines.size(); i-- > 0;) {
      if (engines[i]->owner != getpid()) {
        (void)engines[i].release();  // a fork's: joining threads that do not exist would not return
        engines.erase(engines.begin() + static_cast<std::ptrdiff_t>(i));
      } else if (engines[i]->num_threads == wanted && !engine_) {
        engine_ = std::move(engines[i]);
        engines.erase(engines.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
  if (!engine_) engine_ = std::make_unique<Engine>(wanted);
}

EngineLease::~EngineLease() {
  const std::lock_guard lock(idle().mutex);
  if (idle().engines.size() < kMaxIdle) idle().engines.push_back(std::move(engine_));
}

AttentionContext& EngineLease::context() const { return engine_->context; }
ThreadPool& EngineLease::pool() const { return engine_->pool; }

}  // namespace sightline::python
