#include "subjects/process/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace sightline::subjects {
namespace {

// A wait is cut into pieces of this length, so that `stop` is asked in between.
constexpr std::int64_t kWaitPiece = 100;  // ms

tl::unexpected<Error> system_failure(std::string_view what) {
  return fail(ErrorKind::kIo, "{}: {}", what, std::strerror(errno));
}

}  // namespace

Result<Child> Child::start(const ChildMain& child_main, std::function<bool()> stop) {
  std::array<int, 2> to{-1, -1};
  std::array<int, 2> from{-1, -1};
  if (::pipe2(to.data(), O_CLOEXEC) != 0) return system_failure("a pipe to the subject");
  if (::pipe2(from.data(), O_CLOEXEC) != 0) {
    const auto failed = system_failure("a pipe from the subject");
    for (const int fd : to) ::close(fd);
    return failed;
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const auto failed = system_failure("a process for the subject");
    for (const int fd : {to[0], to[1], from[0], from[1]}) ::close(fd);
    return failed;
  }
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);  // it went before the line above
    ::signal(SIGPIPE, SIG_DFL);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    ::close(to[1]);
    ::close(from[0]);
    ::_exit(child_main(to[0], from[1]));
  }
  ::setpgid(pid, pid);  // whoever comes first
  ::close(to[0]);
  ::close(from[1]);
  ::fcntl(to[1], F_SETFL, ::fcntl(to[1], F_GETFL) | O_NONBLOCK);
  return Child(pid, to[1], from[0], std::move(stop));
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      stop_(std::move(other.stop_)),
      buffered_(std::move(other.buffered_)) {}

Child::~Child() {
  if (to_ >= 0) ::close(to_);
  if (from_ >= 0) ::close(from_);
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<void> Child::wait_for(int fd, short events, Clock::time_point deadline, const char* silence) const {
  for (;;) {
    if (stop_ && stop_()) return fail(ErrorKind::kIo, "the check was stopped");
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return fail(ErrorKind::kIo, "{}", silence);
    pollfd polled{fd, events, 0};
    const int n = ::poll(&polled, 1, static_cast<int>(std::min<std::int64_t>(left, kWaitPiece)));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return {};  // the call that follows says why
  }
}

Error Child::ended() {
  // Its end of the pipe is closed; give it a moment to be gone, so that its status can be told.
  int status = 0;
  pid_t got = 0;
  for (int i = 0; i < 50 && got == 0; ++i) {
    got = ::waitpid(pid_, &status, WNOHANG);
    if (got == 0) ::usleep(10000);
  }
  if (got != pid_) return {ErrorKind::kIo, "the subject closed its output"};
  ::kill(-pid_, SIGKILL);  // what it left behind
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    return {ErrorKind::kIo, fmt::format("the subject crashed: signal {} ({})", WTERMSIG(status),
                                        ::strsignal(WTERMSIG(status)))};
  }
  return {ErrorKind::kIo, fmt::format("the subject ended with exit status {}", WEXITSTATUS(status))};
}

Result<void> Child::write_line(std::string_view text, Clock::time_point deadline) {
  // A closed pipe is an answer here, no signal; the caller's handler is put back.
  const auto old_handler = ::signal(SIGPIPE, SIG_IGN);
  const std::string line = std::string(text) + "\n";
  Result<void> result;
  for (std::size_t sent = 0; sent < line.size();) {
    result = wait_for(to_, POLLOUT, deadline, "the subject takes no request: it hangs");
    if (!result) break;
    const ssize_t n = ::write(to_, line.data() + sent, line.size() - sent);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      result = tl::unexpected<Error>(ended());
      break;
    }
  }
  ::signal(SIGPIPE, old_handler);
  return result;
}

Result<std::string> Child::read_line(Clock::time_point deadline, std::size_t max_bytes) {
  std::size_t searched = 0;
  for (;;) {
    if (const std::size_t end = buffered_.find('\n', searched); end != std::string::npos) {
      std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      return line;
    }
    searched = buffered_.size();
    if (buffered_.size() > max_bytes) {
      return fail(ErrorKind::kIo, "the subject writes a line of over {} bytes, more than any answer here",
                  max_bytes);
    }
    SIGHTLINE_CHECK(wait_for(from_, POLLIN, deadline, "the subject gives no answer in time: it hangs"));
    std::array<char, 1 << 16> chunk;
    const ssize_t n = ::read(from_, chunk.data(), chunk.size());
    if (n > 0) {
      buffered_.append(chunk.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return tl::unexpected<Error>(ended());
    }
  }
}

}  // namespace sightline::subjects
