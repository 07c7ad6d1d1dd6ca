// Runs a program from a test: arguments, environment, limits and where its output goes; gives the exit
// code, or the signal that ended it.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace sightline::testing {

struct RunOptions {
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::string stdin_text;
  std::string stdout_path;              // "": captured
  bool closes_stdout = false;           // the program starts without a descriptor 1
  bool breaks_stdout = false;           // the reader of the pipe is gone from the start
  bool stderr_is_terminal = false;      // a pseudo terminal; lines then end in \r\n
  std::size_t address_space_bytes = 0;  // ulimit -v; 0: no limit
  std::string working_directory;
  int signal_after_output = 0;  // sent once, when the first byte of standard output arrives
  int timeout_seconds = 60;     // then it is killed: signal 9
};

struct RunResult {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  std::string out;
  std::string err;
  std::size_t peak_bytes = 0;  // largest resident size; at least that of the test at the start
};

/// Runs `argv[0]` with `argv`. A program that cannot be started has exit code 127.
RunResult run_program(const std::vector<std::string>& argv, const RunOptions& options = {});

/// True when process `pid` has ended within a second (a zombie has).
bool is_gone_soon(pid_t pid);

}  // namespace sightline::testing
