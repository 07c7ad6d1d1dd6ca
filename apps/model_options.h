// Options of the commands that run a model: the file and what is stated in place of its keys, threads,
// arithmetic, cache types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "apps/command.h"
#include "apps/load_options.h"
#include "sightline/kernels/page_layout.h"

namespace sightline::apps {

struct ModelOptions {
  std::string model;
  LoadStatements statements;
  std::optional<std::int64_t> num_threads;  ///< not given: as many as this process may use
  std::string matmul = "native";
};

/// -m and the statements of load_options.h. Returns the argument of -m.
CliArgument& add_load_options(Cli& cli, ModelOptions& options);
/// -t and --matmul.
void add_run_options(Cli& cli, ModelOptions& options);
/// --matmul alone.
CliArgument& add_matmul_option(Cli& cli, std::string& matmul);
/// What add_load_options and add_run_options have read. Errors: those of to_load_options.
[[nodiscard]] Result<LoadOptions> to_load_options(const ModelOptions& options);
/// "native", "bf16" or "f32", as --matmul takes it.
[[nodiscard]] Matmul parse_matmul(std::string_view text);

/// Threads to run with: what was asked for, capped at what the process may use with a note on standard error.
[[nodiscard]] int resolve_threads(std::optional<std::int64_t> requested, Output& err);

/// `result`, whose error, if any, begins with the file or option that it is about.
template <typename T>
[[nodiscard]] Result<T> in_source(std::string_view source, Result<T> result) {
  if (!result) return fail(result.error().kind, "{}: {}", source, result.error().message);
  return result;
}

/// `result` of running the model: content that is at fault is its weights.
template <typename T>
[[nodiscard]] Result<T> in_model(const ModelOptions& options, Result<T> result) {
  const bool is_content = !result && result.error().kind == ErrorKind::kInvalidContent;
  return is_content ? in_source(options.model, std::move(result)) : std::move(result);
}

/// "f32" or "bf16" as a storage type.
[[nodiscard]] Result<StorageType> parse_storage_type(std::string_view what, std::string_view text);

}  // namespace sightline::apps
