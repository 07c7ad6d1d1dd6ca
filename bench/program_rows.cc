// How long the program takes to start: each repeat is a new process.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "bench/families.h"

extern char** environ;

namespace sightline::bench {

namespace {

// Runs the program with its output thrown away; its exit status.
Result<int> run_program(const std::string& path, std::vector<std::string> args) {
  args.insert(args.begin(), path);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int fd : {1, 2}) posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, path.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return fail(ErrorKind::kOutOfMemory, "bench: cannot start {}: {}", path, std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fail(ErrorKind::kInternal, "bench: waitpid: {}", std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// `shown`: the arguments as they are published, without paths of the machine.
Result<void> run_case(const Bench& bench, const std::string& name, const std::vector<std::string>& args,
                      const std::string& shown) {
  Row row;
  row.name = name;
  row.what = fmt::format("a new process: sightline {}", shown);
  row.limit = Limit::kSeconds;
  SIGHTLINE_TRY(const int status, run_program(bench.program_path, args));
  if (status != 0) {
    report_unmeasured(bench, row, fmt::format("not measured: exit status {}", status));
    return {};
  }
  row.note = "exit status 0";
  measure(bench, row, [&] { static_cast<void>(run_program(bench.program_path, args)); });
  return {};
}

Result<void> run_info(const Bench& bench) {
  if (!bench.model_path.empty()) {
    return run_case(bench, "start-info", {"info", bench.model_path},
                    fmt::format("info {}", std::filesystem::path(bench.model_path).filename().string()));
  }
  Row row;
  row.name = "start-info";
  row.what = "a new process: sightline info MODEL";
  row.limit = Limit::kSeconds;
  report_unmeasured(bench, row, "not measured: no model given (-m)");
  return {};
}

}  // namespace

std::vector<RowCase> program_rows() {
  return {
      {"start-version", Limit::kSeconds,
       [](const Bench& bench) { return run_case(bench, "start-version", {"--version"}, "--version"); }},
      {"start-info", Limit::kSeconds, run_info},
  };
}

}  // namespace sightline::bench
