// The options of `check` for something that runs, and how it is started.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "apps/cli.h"
#include "sightline/checker/check.h"
#include "sightline/spec/heads.h"

namespace sightline::apps {

struct SubjectOptions {
  std::string process;
  std::filesystem::path library;
  bool engine = false;
  std::string heads = "6/2";
  std::optional<int> head_dim, v_head_dim;
  std::int64_t tokens = 0;
  std::string budget = "60s";
  std::string timeout = "30s";
  std::uint64_t seed = 1;

  /// --process, --library or --engine was given.
  [[nodiscard]] bool is_given() const { return !process.empty() || !library.empty() || engine; }
  friend bool operator==(const SubjectOptions&, const SubjectOptions&) = default;
};

void add_subject_options(Cli& cli, SubjectOptions& options);

/// Errors (kInvalidArgument): more than one subject, heads that are no "Q/KV".
[[nodiscard]] Result<HeadSpec> subject_heads(const SubjectOptions& options);
/// Everything but type and progress. Errors (kInvalidArgument): a time that is none.
[[nodiscard]] Result<checker::CheckOptions> check_options(const SubjectOptions& options);
/// Errors: those of starting it.
[[nodiscard]] Result<std::unique_ptr<checker::Subject>> start_subject(const SubjectOptions& options);

}  // namespace sightline::apps
