// A process between us and a subject that ends whatever the subject started, also what went into a session or
// process group of its own or has lost its parent. It is one of its own because only a parent of orphans
// (prctl(2), PR_SET_CHILD_SUBREAPER) finds them all, and our process, a library in somebody's program, must
// not become one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <utility>

namespace sightline::subjects {

/// To be called in a child just forked, whose parent was `parent`. Runs `subject_main` in a child of its own,
/// in a process group of its own, and writes that one's wait status to `status_fd` when it ends. Goes when
/// nothing of the subject is left, or at SIGTERM, which the end of the parent sends too: then every
/// descendant is killed first. `subject_fds` stay open in the subject alone.
[[noreturn]] void keep(const std::function<int()>& subject_main, int status_fd,
                       std::pair<int, int> subject_fds, pid_t parent);

}  // namespace sightline::subjects
