#include "apps/check/subject_options.h"

#include "apps/interrupt.h"
#include "sightline/subjects/engine/engine_subject.h"
#include "sightline/subjects/library/library_subject.h"
#include "sightline/subjects/process/process_subject.h"

namespace sightline::apps {
namespace {

constexpr int kDefaultHeadDim = 16;

// "1500ms", "60s", "2m".
Result<std::chrono::milliseconds> parse_time(std::string_view option, const std::string& text) {
  const std::size_t end = text.find_first_not_of("0123456789");
  const std::string_view unit = end == std::string::npos ? "" : std::string_view(text).substr(end);
  const std::int64_t factor = unit == "ms" ? 1 : unit == "s" ? 1000 : unit == "m" ? 60000 : 0;
  if (factor == 0 || end == 0 || end > 6) {
    return fail(ErrorKind::kInvalidArgument, "check: {} {}, expected a time such as 500ms, 60s or 2m", option,
                text);
  }
  return std::chrono::milliseconds(std::stoll(text.substr(0, end)) * factor);
}

}  // namespace

void add_subject_options(Cli& cli, SubjectOptions& options) {
  cli.option("--process", options.process, "COMMAND",
             "check a program that speaks JSON lines (docs/subjects.md)");
  cli.option("--library", options.library, "FILE", "check a shared library (include/sightline/subject.h)");
  cli.flag("--engine", options.engine, "check Sightline's own attention");
  cli.option("--heads", options.heads, "Q/KV", "query and key heads of the probes");
  cli.option("--head-dim", options.head_dim, "N", "components of a query and a key (default 16)")
      .range(1, 4096);
  cli.option("--v-head-dim", options.v_head_dim, "N", "components of a value; as --head-dim if not given")
      .range(1, 4096);
  cli.option("--tokens", options.tokens, "N", "tokens of a probe; 0: what the mask needs").range(0, 4096);
  cli.option("--budget", options.budget, "TIME", "ask nothing more after this: 500ms, 60s, 2m; 0s: no end");
  cli.option("--timeout", options.timeout, "TIME", "of one answer; then it hangs");
  cli.option("--seed", options.seed, "N", "of the inputs");
}

Result<HeadSpec> subject_heads(const SubjectOptions& options) {
  const int given =
      (options.process.empty() ? 0 : 1) + (options.library.empty() ? 0 : 1) + (options.engine ? 1 : 0);
  if (given != 1) {
    return fail(ErrorKind::kInvalidArgument, "check: --process, --library and --engine exclude each other");
  }
  const std::size_t slash = options.heads.find('/');
  const auto count = [](std::string_view text) {
    const bool is_number =
        !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == text.npos;
    return is_number ? std::stoi(std::string(text)) : 0;
  };
  HeadSpec heads;
  heads.num_q_heads = count(std::string_view(options.heads).substr(0, slash));
  heads.num_kv_heads = slash == std::string::npos ? heads.num_q_heads
                                                  : count(std::string_view(options.heads).substr(slash + 1));
  if (heads.num_q_heads == 0 || heads.num_kv_heads == 0) {
    return fail(ErrorKind::kInvalidArgument, "check: --heads {}, expected for example 8/2", options.heads);
  }
  heads.qk_head_dim = options.head_dim.value_or(kDefaultHeadDim);
  heads.v_head_dim = options.v_head_dim.value_or(heads.qk_head_dim);
  return heads;
}

Result<checker::CheckOptions> check_options(const SubjectOptions& options) {
  checker::CheckOptions check;
  check.num_tokens = options.tokens;
  check.stop = InterruptGuard::requested;
  check.seed = options.seed;
  SIGHTLINE_TRY(check.budget, parse_time("--budget", options.budget));
  return check;
}

Result<std::unique_ptr<checker::Subject>> start_subject(const SubjectOptions& options) {
  subjects::ProcessOptions process;
  SIGHTLINE_TRY(process.timeout, parse_time("--timeout", options.timeout));
  process.stop = InterruptGuard::requested;
  if (!options.process.empty()) return subjects::start_process(options.process, process);
  if (!options.library.empty()) return subjects::start_library(options.library, process);
  return subjects::engine_subject(1);
}

}  // namespace sightline::apps
