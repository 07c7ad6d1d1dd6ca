#include "support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>

namespace sightline::testing {

namespace {

[[noreturn]] void become(const std::vector<std::string>& argv, const RunOptions& options, int in, int out,
                         int err) {
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (!options.stdout_path.empty()) ::dup2(::open(options.stdout_path.c_str(), O_WRONLY), STDOUT_FILENO);
  if (options.closes_stdout) ::close(STDOUT_FILENO);
  if (!options.working_directory.empty() && ::chdir(options.working_directory.c_str()) != 0) ::_exit(127);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::signal(SIGPIPE, SIG_DFL);
  if (options.address_space_bytes > 0) {
    const rlimit limit{options.address_space_bytes, options.address_space_bytes};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  std::vector<char*> pointers;
  for (const std::string& arg : argv) pointers.push_back(const_cast<char*>(arg.c_str()));
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

}  // namespace

RunResult run_program(const std::vector<std::string>& argv, const RunOptions& options) {
  RunResult result;
  std::array<int, 2> in{}, out{}, err{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0 ||
      ::pipe2(err.data(), O_CLOEXEC) != 0) {
    return result;
  }
  if (options.breaks_stdout) ::close(out[0]);
  if (options.stderr_is_terminal) {
    ::close(err[0]);
    ::close(err[1]);
    err[0] = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (err[0] < 0 || ::grantpt(err[0]) != 0 || ::unlockpt(err[0]) != 0) return result;
    err[1] = ::open(::ptsname(err[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
  }
  const pid_t child = ::fork();
  if (child == 0) become(argv, options, in[0], out[1], err[1]);
  ::close(in[0]);
  ::close(out[1]);
  ::close(err[1]);
  const auto old_handler = ::signal(SIGPIPE, SIG_IGN);

  std::array<pollfd, 3> polled{
      {{options.breaks_stdout ? -1 : out[0], POLLIN, 0}, {err[0], POLLIN, 0}, {in[1], POLLOUT, 0}}};
  std::size_t num_sent = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(options.timeout_seconds);
  bool is_killed = false;
  while (polled[0].fd >= 0 || polled[1].fd >= 0) {
    if (num_sent == options.stdin_text.size() && polled[2].fd >= 0) ::close(std::exchange(polled[2].fd, -1));
    if (::poll(polled.data(), polled.size(), 200) < 0 && errno != EINTR) break;
    if (!is_killed && std::chrono::steady_clock::now() > deadline) {
      ::kill(child, SIGKILL);
      is_killed = true;
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (polled[i].fd < 0 || polled[i].revents == 0) continue;
      std::array<char, 1 << 16> chunk;
      const ssize_t n = ::read(polled[i].fd, chunk.data(), chunk.size());
      if (n > 0) {
        if (i == 0 && result.out.empty() && options.signal_after_output != 0) {
          ::kill(child, options.signal_after_output);
        }
        (i == 0 ? result.out : result.err).append(chunk.data(), static_cast<std::size_t>(n));
      } else {
        ::close(std::exchange(polled[i].fd, -1));
      }
    }
    if (polled[2].fd >= 0 && polled[2].revents != 0) {
      const ssize_t n =
          ::write(polled[2].fd, options.stdin_text.data() + num_sent, options.stdin_text.size() - num_sent);
      num_sent = n > 0 ? num_sent + static_cast<std::size_t>(n) : options.stdin_text.size();
    }
  }
  if (polled[2].fd >= 0) ::close(polled[2].fd);
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  result.peak_bytes = static_cast<std::size_t>(usage.ru_maxrss) << 10;
  ::signal(SIGPIPE, old_handler);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

bool is_gone_soon(pid_t pid) {
  for (int i = 0; i < 100; ++i) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    if (!(stat >> number >> name >> state) || state == "Z") return true;
    ::usleep(10000);
  }
  return false;
}

}  // namespace sightline::testing
