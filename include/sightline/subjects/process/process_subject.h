// A subject in another process, which speaks JSON lines (docs/subjects.md). What it does cannot hurt the
// check: a crash, a hang or nonsense becomes an error, and it is gone when the subject is.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "sightline/base/error.h"
#include "sightline/checker/subject.h"

namespace sightline::subjects {

/// What runs in the child, with its ends of the two pipes; the result is its exit status.
using ChildMain = std::function<int(int in, int out)>;

struct ProcessOptions {
  std::chrono::milliseconds timeout{30000};  ///< of one answer
  /// Asked several times a second while the subject is waited for; true gives up (kIo).
  std::function<bool()> stop;
};

/// Starts `command` with /bin/sh in a process group of its own and greets it.
/// Errors: kIo: it cannot be started, ends, or is silent for longer than the timeout; kInvalidContent: it
/// answers something else than the protocol.
[[nodiscard]] Result<std::unique_ptr<checker::Subject>> start_process(const std::string& command,
                                                                      const ProcessOptions& options = {});

/// The same with a copy of this process. Call it before threads are started.
[[nodiscard]] Result<std::unique_ptr<checker::Subject>> start_child(ChildMain child_main,
                                                                    const ProcessOptions& options = {});

/// Answers requests from `in` on `out` with `subject` until the input ends: the other side of the protocol.
/// Errors: kIo; requests that cannot be read are answered with an error and do not end it.
[[nodiscard]] Result<void> serve_lines(checker::Subject& subject, int in, int out);

/// Answers the first request with `error`, for a subject that cannot start; gives exit status 1.
int refuse_lines(const Error& error, int in, int out);

}  // namespace sightline::subjects
