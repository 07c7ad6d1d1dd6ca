// The program: finds the command, runs it, and turns what it returns into one line and an exit code.
// No input may end it by a signal: what escapes as an exception ends with 70 or 71 as well.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "apps/command.h"
#include "apps/out_of_memory.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline::apps {

namespace {

Result<int> run_without_command(Invocation& call) {
  bool version = false;
  Cli cli("", "Attention on CPUs that can say what it means.");
  cli.flag("--version", version, "the version").no_variable();
  std::string rows = "Commands (sightline COMMAND --help tells more):\n";
  for (const Command& command : commands())
    rows += fmt::format("  {:12} {}\n", command.name, command.summary);
  cli.epilog(rows);
  if (call.args.size() == 1 && call.args[0] == "--complete-options") {
    for (const Command& command : commands()) call.out.print("{}\n", command.name);
  }
  if (auto ended = cli.parse(call)) return *ended;
  if (version) {
    call.out.write("sightline " SIGHTLINE_VERSION "\n");
    return 0;
  }
  return fail(ErrorKind::kInvalidArgument, "which command? (see 'sightline --help')");
}

Result<int> run(Invocation& call) {
  if (call.args.empty() || call.args[0].starts_with("-")) return run_without_command(call);
  const std::string name = call.args[0];
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) {
      SIGHTLINE_CHECK(kernels::selection_error());
      call.args.erase(call.args.begin());
      return command.run(call);
    }
    names.emplace_back(command.name);
  }
  const std::string near = nearest_name(name, names);
  return fail(ErrorKind::kInvalidArgument, "unknown command {}{} (see 'sightline --help')", quote(name),
              near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

// The command's result, with its data delivered: a failed write is an error of the command.
int finish(Invocation& call, Result<int> result) {
  if (result) {
    if (auto delivered = call.out.commit(); !delivered) result = tl::unexpected<Error>(delivered.error());
  } else if (auto flushed = call.out.flush(); !flushed) {
    result = tl::unexpected<Error>(flushed.error());
  }
  if (result) return *result;
  call.err.print("sightline: {}\n{}", one_line(result.error().message), call.below_error);
  (void)call.err.flush();
  return exit_code(result.error().kind);
}

// Allocates nothing: memory may be what is missing.
[[noreturn]] void end_now(std::string_view line, ErrorKind kind) {
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  ::_exit(exit_code(kind));
}

constexpr std::string_view kNoMemory = "sightline: out of memory\n";

// Exceptions on a thread of their own, in a noexcept function, or before main.
[[noreturn]] void on_terminate() {
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::bad_alloc&) {
    end_now(kNoMemory, ErrorKind::kOutOfMemory);
  } catch (...) {
  }
  end_now("sightline: an unexpected exception; this is a bug\n", ErrorKind::kInternal);
}

[[noreturn]] void on_out_of_memory() { end_now(kNoMemory, ErrorKind::kOutOfMemory); }

// Before the initialisers of other files, which allocate.
[[gnu::constructor(101)]] void install_terminate_handler() { std::set_terminate(on_terminate); }

// A closed descriptor 0 to 2 would be given to the next file opened, which then receives our output. One
// that is open for reading only keeps the number taken and lets writes fail.
void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)!::open("/dev/null", O_RDONLY);
  }
}

int main_impl(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  install_out_of_memory_handler(on_out_of_memory);
  occupy_standard_descriptors();
  Output out(STDOUT_FILENO, "standard output");
  Output err(STDERR_FILENO, "standard error");
  Invocation call{{argv + std::min(argc, 1), argv + argc}, out, err};
  return finish(call, run(call));
}

}  // namespace

}  // namespace sightline::apps

int main(int argc, char** argv) {
  using namespace sightline;
  try {
    return apps::main_impl(argc, argv);
  } catch (const std::bad_alloc&) {
    apps::end_now(apps::kNoMemory, ErrorKind::kOutOfMemory);
  } catch (const std::system_error& error) {  // a thread or a lock was refused
    const std::string line = fmt::format("sightline: a system resource was refused: {}\n", error.what());
    apps::end_now(line, ErrorKind::kOutOfMemory);
  } catch (const std::exception& error) {
    const std::string line = fmt::format("sightline: {}; this is a bug\n", error.what());
    apps::end_now(line, ErrorKind::kInternal);
  }
}
