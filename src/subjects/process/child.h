// A child process with a pipe to it and one from it, read by lines against the clock. Killed when this goes,
// with everything that it started (keeper.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "sightline/base/error.h"
#include "sightline/subjects/process/process_subject.h"

namespace sightline::subjects {

class Child {
 public:
  using Clock = std::chrono::steady_clock;

  /// `stop`, if any, is asked several times a second during every wait. Errors (kIo): no pipe, no process.
  [[nodiscard]] static Result<Child> start(const ChildMain& child_main, std::function<bool()> stop = {});
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  /// Errors (kIo): the child is gone, or takes nothing until `deadline`, or `stop` said so.
  [[nodiscard]] Result<void> write_line(std::string_view text, Clock::time_point deadline);
  /// The next line without its end. Errors (kIo): the child ended (how, is said), is silent until `deadline`,
  /// writes a line over `max_bytes`, or `stop` said so.
  [[nodiscard]] Result<std::string> read_line(Clock::time_point deadline, std::size_t max_bytes);

 private:
  struct Descriptors {
    int to = -1, from = -1, status = -1;
  };
  Child(pid_t keeper, Descriptors fds, std::function<bool()> stop)
      : keeper_(keeper), fds_(fds), stop_(std::move(stop)) {}
  // Returns when nothing of the subject is left.
  void end_keeper();
  [[nodiscard]] Error ended();
  // Until `fd` is ready; a hang-up counts as ready. Errors (kIo): `silence` at the deadline, or `stop` said
  // so.
  [[nodiscard]] Result<void> wait_for(int fd, short events, Clock::time_point deadline,
                                      const char* silence) const;

  pid_t keeper_;
  Descriptors fds_;
  std::function<bool()> stop_;
  std::string buffered_;
};

}  // namespace sightline::subjects
