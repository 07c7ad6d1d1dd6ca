// Threads and scratch of the engine, kept between calls from Python; calls from several Python threads get
// one each. After a fork the child makes its own: the threads of its parent are not there.
#pragma once

#include <memory>

#include "sightline/attention/attention.h"

namespace sightline::python {

/// A context for one call; goes back when it is destroyed. num_threads 0: all cores of this process.
class EngineLease {
 public:
  explicit EngineLease(int num_threads);
  ~EngineLease();
  EngineLease(const EngineLease&) = delete;
  EngineLease& operator=(const EngineLease&) = delete;
  [[nodiscard]] AttentionContext& context() const;
  [[nodiscard]] ThreadPool& pool() const;

  struct Engine;

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace sightline::python
