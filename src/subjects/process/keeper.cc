#include "subjects/process/keeper.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sightline::subjects {
namespace {

// Looks at the table of processes; one that does not die in all of them hangs in the kernel.
constexpr int kMaxRounds = 2000;
constexpr useconds_t kRoundPause = 1000;

// The parent of a process, by its line in /proc; -1 when it is gone.
pid_t parent_of(const char* pid) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%.20s/stat", pid);
  const int fd = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  std::array<char, 512> line{};
  const ssize_t n = ::read(fd, line.data(), line.size() - 1);
  ::close(fd);
  if (n <= 0) return -1;
  // "PID (NAME) STATE PARENT": a name may hold parentheses and spaces, what follows it holds none.
  const char* end = std::strrchr(line.data(), ')');
  return end == nullptr || std::strlen(end) < 5 ? -1 : static_cast<pid_t>(std::atol(end + 4));
}

void kill_children() {
  DIR* table = ::opendir("/proc");
  if (table == nullptr) return;
  const pid_t self = ::getpid();
  while (const dirent* entry = ::readdir(table)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (parent_of(entry->d_name) == self) ::kill(static_cast<pid_t>(std::atol(entry->d_name)), SIGKILL);
  }
  ::closedir(table);
}

// Children of what is killed become ours, so that the next round finds them.
void kill_all(pid_t subject) {
  ::kill(-subject, SIGKILL);
  for (int round = 0; round < kMaxRounds; ++round) {
    kill_children();
    pid_t gone = 0;
    do gone = ::waitpid(-1, nullptr, WNOHANG);
    while (gone > 0);
    if (gone < 0 && errno == ECHILD) return;
    ::usleep(kRoundPause);
  }
}

}  // namespace

void keep(const std::function<int()>& subject_main, int status_fd, std::pair<int, int> subject_fds,
          pid_t parent) {
  ::setpgid(0, 0);
  sigset_t awaited, before;
  ::sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGCHLD}) ::sigaddset(&awaited, signal);
  ::sigprocmask(SIG_BLOCK, &awaited, &before);
  ::signal(SIGCHLD, SIG_DFL);
  // A subject that signals its parent must not end the one that ends the subject.
  constexpr int kIgnored[] = {SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE};
  for (const int signal : kIgnored) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(0);  // it went before the line above
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t self = ::getpid();
  const pid_t subject = ::fork();
  if (subject == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self) ::_exit(0);
    for (const int signal : kIgnored) ::signal(signal, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::close(status_fd);
    ::_exit(subject_main());
  }
  ::close(subject_fds.first);
  ::close(subject_fds.second);
  if (subject < 0) ::_exit(1);
  ::setpgid(subject, subject);  // whoever comes first
  for (;;) {
    int signal = 0;
    if (::sigwait(&awaited, &signal) != 0) continue;
    if (signal == SIGTERM) {
      kill_all(subject);
      ::_exit(0);
    }
    int status = 0;
    pid_t gone = 0;
    while ((gone = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (gone == subject) (void)!::write(status_fd, &status, sizeof status);
    }
    if (gone < 0 && errno == ECHILD) ::_exit(0);
  }
}

}  // namespace sightline::subjects
