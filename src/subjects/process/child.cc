#include "subjects/process/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "subjects/process/keeper.h"

namespace sightline::subjects {
namespace {

// A wait is cut into pieces of this length, so that `stop` is asked in between.
constexpr std::int64_t kWaitPiece = 100;  // ms
constexpr int kStatusWait = 500;          // ms

tl::unexpected<Error> system_failure(std::string_view what) {
  return fail(ErrorKind::kIo, "{}: {}", what, std::strerror(errno));
}

}  // namespace

Result<Child> Child::start(const ChildMain& child_main, std::function<bool()> stop) {
  std::array<std::array<int, 2>, 3> pipes{};  // to the subject, from it, and its status from the keeper
  for (auto& pipe : pipes) pipe.fill(-1);
  const auto close_all = [&pipes] {
    for (const auto& pipe : pipes) {
      for (const int fd : pipe) {
        if (fd >= 0) ::close(fd);
      }
    }
  };
  for (auto& pipe : pipes) {
    if (::pipe2(pipe.data(), O_CLOEXEC) == 0) continue;
    const auto failed = system_failure("a pipe to or from the subject");
    close_all();
    return failed;
  }
  const auto& [to, from, status] = pipes;
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const auto failed = system_failure("a process for the subject");
    close_all();
    return failed;
  }
  if (pid == 0) {
    for (const int fd : {to[1], from[0], status[0]}) ::close(fd);
    keep([&] { return child_main(to[0], from[1]); }, status[1], {to[0], from[1]}, parent);
  }
  for (const int fd : {to[0], from[1], status[1]}) ::close(fd);
  ::fcntl(to[1], F_SETFL, ::fcntl(to[1], F_GETFL) | O_NONBLOCK);
  return Child(pid, {to[1], from[0], status[0]}, std::move(stop));
}

Child::Child(Child&& other) noexcept
    : keeper_(std::exchange(other.keeper_, -1)),
      fds_(std::exchange(other.fds_, {})),
      stop_(std::move(other.stop_)),
      buffered_(std::move(other.buffered_)) {}

Child::~Child() {
  for (const int fd : {fds_.to, fds_.from}) {
    if (fd >= 0) ::close(fd);
  }
  end_keeper();
  if (fds_.status >= 0) ::close(fds_.status);
}

void Child::end_keeper() {
  if (keeper_ <= 0) return;
  ::kill(keeper_, SIGTERM);
  while (::waitpid(keeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
  keeper_ = -1;
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
  pollfd polled{fds_.status, POLLIN, 0};
  int status = 0;
  const bool is_known =
      ::poll(&polled, 1, kStatusWait) > 0 && ::read(fds_.status, &status, sizeof status) == sizeof status;
  end_keeper();  // with what it left behind
  if (!is_known) return {ErrorKind::kIo, "the subject closed its output"};
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
    result = wait_for(fds_.to, POLLOUT, deadline, "the subject takes no request: it hangs");
    if (!result) break;
    const ssize_t n = ::write(fds_.to, line.data() + sent, line.size() - sent);
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
    SIGHTLINE_CHECK(wait_for(fds_.from, POLLIN, deadline, "the subject gives no answer in time: it hangs"));
    std::array<char, 1 << 16> chunk;
    const ssize_t n = ::read(fds_.from, chunk.data(), chunk.size());
    if (n > 0) {
      buffered_.append(chunk.data(), static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return tl::unexpected<Error>(ended());
    }
  }
}

}  // namespace sightline::subjects
