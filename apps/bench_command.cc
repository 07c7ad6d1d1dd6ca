// sightline bench: calibrates the machine and prints every row as a fraction of its limit.
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>

#include "apps/command.h"
#include "apps/model_options.h"
#include "bench/families.h"
#include "bench/report.h"

namespace sightline::apps {

namespace {

using bench::Limit;

bench::Format parse_format(const std::string& word) {
  if (word == "json") return bench::Format::kJson;
  if (word == "csv") return bench::Format::kCsv;
  return word == "md" ? bench::Format::kMarkdown : bench::Format::kText;
}

bool reads_memory(const std::vector<bench::RowCase>& rows) {
  for (const bench::RowCase& row : rows) {
    if (row.limit == Limit::kBandwidth) return true;
  }
  return false;
}

// Peaks, and reads of half of each cache and, where rows are held against it, of memory.
bench::Calibration calibrate_machine(const bench::Bench& bench, const std::vector<bench::RowCase>& rows) {
  bench::Calibration c;
  c.isa = bench.table->name;
  c.description = bench.table->description;
  c.threads = bench.pool->num_threads();
  c.peak_f32 = calibrate_peak(bench);
  c.peak_bf16 = calibrate_peak(bench, Limit::kPeakBf16);
  c.peak_int8 = calibrate_peak(bench, Limit::kPeakInt8);
  std::vector<std::size_t> sets;
  for (const std::size_t cache : {bench::level2_bytes(), bench::level3_bytes()}) {
    if (cache > 0 && cache / 2 < bench::memory_bytes()) sets.push_back(cache / 2);
  }
  if (reads_memory(rows)) sets.push_back(bench::memory_bytes());
  for (const std::size_t bytes : sets) c.reads.emplace_back(bytes, calibrate_bandwidth(bench, bytes));
  return c;
}

void list_rows(Output& out) {
  for (const bench::RowFamily& family : bench::row_families()) {
    out.print("{}: {}\n", family.name, family.summary);
    for (const bench::RowCase& row : family.rows()) out.print("  {}\n", row.name);
  }
}

// So that a program which compares us with others can let them run in between. The end of the input is a line
// too.
void wait_for_line(Output& err) {
  err.print("ready\n");
  static_cast<void>(err.flush());
  std::string line;
  std::getline(std::cin, line);
}

constexpr const char* kEpilog =
    "Rows are f32-causal-d64-T2048 (type, mask, head size, tokens), tg64 @ d4096 (llama-bench's names) and "
    "the\n"
    "like; --list prints them. Every result is held against a slower computation before it is timed.\n"
    "--goals runs each row 5 times. A run counts if its calibration moved by less than 5 %; at least 3 must\n"
    "count, and their median decides: stretch, first, SHORT, or else not measured. Exit 1: a mark is not "
    "met.\n"
    "  sightline bench --rows attention,decode\n"
    "  sightline bench --rows 'f32-*-d64-*' --goals -o md\n";

}  // namespace

Result<int> run_bench(Invocation& call) {
  std::optional<std::int64_t> threads;
  int repeats = 7;
  std::optional<int> runs;
  bool paced = false;
  bool json = false;
  bool with_goals = false;
  bool list = false;
  std::string format = "text";
  std::string pattern = "all";
  std::string model;
  std::string isa;
  Cli cli("bench", "Calibrates this machine and prints what Sightline reaches of it.");
  cli.option("-t,--threads", threads, "N", "threads (default: all that this process may use)")
      .range(1, 10000);
  cli.option("--repeats", repeats, "N",
             "timed repeats of a run, fewer where they take over 2 s; the median counts")
      .range(5, 1000);
  cli.option("--runs", runs, "N",
             "runs of each row, each between two calibrations (default: 1, 5 with --goals)")
      .range(1, 100);
  cli.flag("--paced", paced,
           "say 'ready' on standard error and wait for a line on standard input before each run");
  cli.option("--rows", pattern, "PATTERN", "which rows: families, names, globs with * and ?, commas between");
  cli.flag("--list", list, "print the names of the rows and stop");
  cli.flag("--goals", with_goals, "5 runs of each row, and a verdict beside its mark");
  cli.option("-o,--format", format, "FORMAT", "how rows are printed").choices({"text", "json", "csv", "md"});
  cli.option("-m,--model", model, "FILE", "model for the rows that need one");
  cli.option("--isa", isa, "NAME", "instruction set; also read by every other command as SIGHTLINE_ISA");
  cli.flag("--json", json, "the same as -o json");
  cli.report_options();
  cli.epilog(kEpilog);
  if (auto ended = cli.parse(call)) return *ended;

  if (with_goals && runs && *runs < bench::kJudgedRuns) {
    return fail(ErrorKind::kInvalidArgument, "--goals: a mark is judged on {} runs, got --runs {}",
                bench::kJudgedRuns, *runs);
  }
  if (list) {
    list_rows(call.out);
    return 0;
  }
  SIGHTLINE_TRY(const std::vector<bench::RowCase> rows, bench::select_rows(pattern));
  bench::Bench bench;
  SIGHTLINE_TRY(bench.table, kernels::select_isa(isa));
  ThreadPool pool(resolve_threads(threads, call.err));
  bench.pool = &pool;
  bench.bf16_peak = kernels::bf16_peak_loop(isa);
  bench.int8_peak = kernels::int8_peak_loop(isa);
  bench.runs = runs.value_or(with_goals ? bench::kJudgedRuns : 1);
  bench.repeats = repeats;
  bench.model_path = model;
  std::error_code error;
  bench.program_path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  bench::Report report(
      json ? bench::Format::kJson : parse_format(format), with_goals, [&](std::string_view text) {
        call.out.write(text);
        static_cast<void>(
            call.out.flush());  // a row is there when it is done; a failure is kept and seen at the end
      });
  bench.report = [&](const bench::Row& row) { report.add(row); };
  if (paced) bench.before_run = [&] { wait_for_line(call.err); };
  report.begin(calibrate_machine(bench, rows));
  for (const bench::RowCase& row : rows) {
    if (!call.out.ok()) break;
    SIGHTLINE_CHECK(row.run(bench));
  }
  report.end(pattern == "all" ? bench::marks_without_row() : std::vector<std::string>{});
  return report.num_unmet() > 0 ? 1 : 0;
}

}  // namespace sightline::apps
