#include "apps/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace sightline::apps {

namespace {

std::atomic<int> num_signals{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int) {
  if (num_signals.fetch_add(1) > 0) ::_exit(kExitInterrupted);
}

void set_handler(void (*handler)(int)) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // as under nohup
    action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  num_signals = 0;
  set_handler(on_signal);
}

InterruptGuard::~InterruptGuard() { set_handler(SIG_DFL); }

bool InterruptGuard::requested() { return num_signals.load() > 0; }

}  // namespace sightline::apps
