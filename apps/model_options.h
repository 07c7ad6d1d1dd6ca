// Options of the commands that run a model: the file and what is stated in place of its keys, threads,
// arithmetic, cache types.
#pragma once

#include <cstdint>
#include <string>

#include "apps/command.h"
#include "apps/load_options.h"
#include "sightline/kernels/page_layout.h"

namespace sightline::apps {

struct ModelOptions {
  std::string model;
  LoadStatements statements;
  std::int64_t num_threads = 0;  ///< 0: as many as this process may use
  std::string matmul = "f32";
};

/// -m and the statements of load_options.h. Returns the argument of -m.
CliArgument& add_load_options(Cli& cli, ModelOptions& options);
/// -t and --matmul.
void add_run_options(Cli& cli, ModelOptions& options);

/// Threads to run with: what was asked for, capped at what the process may use with a note on standard error.
[[nodiscard]] int resolve_threads(std::int64_t requested, Output& err);

/// "f32" or "bf16" as a storage type.
[[nodiscard]] Result<StorageType> parse_storage_type(std::string_view what, std::string_view text);

}  // namespace sightline::apps
