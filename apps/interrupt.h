// Ctrl-C for commands that stop at a good place (generate: after the current token) and still print what
// they have. Commands without a guard keep the default: the signal ends the process.
#pragma once

namespace sightline::apps {

/// The exit code of a command that Ctrl-C, SIGTERM or a closed terminal (SIGHUP) stopped.
inline constexpr int kExitInterrupted = 130;

/// While it lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag; a second ends the process with 130.
/// Signals that are ignored stay so. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  [[nodiscard]] static bool requested();
};

}  // namespace sightline::apps
