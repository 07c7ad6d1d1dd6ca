// A child process with a pipe to it and one from it, read by lines against the clock. Killed, with its whole
// process group, when this goes.
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
  Child(pid_t pid, int to, int from, std::function<bool()> stop)
      : pid_(pid), to_(to), from_(from), stop_(std::move(stop)) {}
  [[nodiscard]] Error ended();
  // Until `fd` is ready; a hang-up counts as ready. Errors (kIo): `silence` at the deadline, or `stop` said
  // so.
  [[nodiscard]] Result<void> wait_for(int fd, short events, Clock::time_point deadline,
                                      const char* silence) const;

  pid_t pid_;
  int to_;
  int from_;
  std::function<bool()> stop_;
  std::string buffered_;
};

}  // namespace sightline::subjects
