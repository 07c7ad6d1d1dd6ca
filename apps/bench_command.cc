// sightline bench: calibrates the machine and prints every row as a fraction of its limit.
#include <filesystem>

#include "apps/command.h"
#include "bench/row.h"
#include "sightline/base/json.h"

namespace sightline::apps {

namespace {

using bench::Limit;
using bench::Row;

std::string rate_text(const Row& row) {
  switch (row.limit) {
    case Limit::kPeak:
      return fmt::format("{:.1f} GFLOP/s", row.rate() / 1e9);
    case Limit::kBandwidth:
      return fmt::format("{:.1f} GB/s", row.rate() / 1e9);
    case Limit::kSeconds:
      break;
  }
  return "";
}

void print_row(Output& out, const Row& row) {
  if (!row.measured) {
    out.print("{:<24} {}\n", row.name, row.note);
    return;
  }
  const bool is_time = row.limit == Limit::kSeconds;
  out.print(
      "{:<24} {:>10.3f} ms {:>16}  {:>5.2f} of {:<11} {:<8} {}\n", row.name, row.median() * 1e3,
      rate_text(row), row.fraction(),
      is_time ? fmt::format("{} s", row.limit_before) : (row.limit == Limit::kPeak ? "peak" : "bandwidth"),
      row.steady() ? "steady" : "unsteady", row.note);
}

Json row_json(const Row& row) {
  Json json;
  json.set("name", row.name);
  json.set("what", row.what);
  json.set("measured", row.measured);
  json.set("note", row.note);
  if (!row.measured) return json;
  json.set("limit", row.limit == Limit::kPeak        ? "peak"
                    : row.limit == Limit::kBandwidth ? "bandwidth"
                                                     : "seconds");
  json.set("median_s", row.median());
  json.set("minimum_s", row.seconds.front());
  json.set("repeats", static_cast<std::int64_t>(row.seconds.size()));
  json.set("work", row.work);
  json.set("rate_per_s", row.rate());
  json.set("limit_before", row.limit_before);
  json.set("limit_after", row.limit_after);
  json.set("fraction", row.fraction());
  json.set("steady", row.steady());
  return json;
}

Result<void> run_rows(const bench::Bench& bench, const std::string& group) {
  const bool all = group == "all";
  if (all || group == "attention") SIGHTLINE_CHECK(run_attention_rows(bench));
  if (all || group == "linear") SIGHTLINE_CHECK(run_linear_rows(bench));
  if (all || group == "model") SIGHTLINE_CHECK(run_model_rows(bench));
  if (all || group == "start") SIGHTLINE_CHECK(run_program_rows(bench));
  return {};
}

}  // namespace

Result<int> run_bench(Invocation& call) {
  int threads = available_threads();
  int repeats = 7;
  bool json = false;
  std::string group = "all";
  std::string model;
  std::string isa;
  Cli cli("bench", "Calibrates this machine and prints what Sightline reaches of it.");
  cli.option("-t,--threads", threads, "N", "threads").range(1, 1024);
  cli.option("--repeats", repeats, "N", "timed runs of each row; the median counts").range(5, 1000);
  cli.option("--rows", group, "GROUP", "which rows")
      .choices({"all", "attention", "linear", "model", "start"});
  cli.option("-m,--model", model, "FILE", "model for the rows that need one");
  cli.option("--isa", isa, "NAME", "instruction set; also read by every other command as SIGHTLINE_ISA");
  cli.flag("--json", json, "one JSON document on standard output");
  cli.report_options();
  if (auto ended = cli.parse(call)) return *ended;

  SIGHTLINE_TRY(const kernels::KernelTable* table, kernels::select_isa(isa));
  ThreadPool pool(threads);
  bench::Bench bench;
  bench.pool = &pool;
  bench.table = table;
  bench.repeats = repeats;
  bench.model_path = model;
  std::error_code error;
  bench.program_path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  JsonArray rows;
  bench.report = [&](const Row& row) {
    if (json) {
      rows.push_back(row_json(row));
    } else {
      print_row(call.out, row);
    }
  };
  const double peak = calibrate_peak(bench);
  const double cached = calibrate_bandwidth(bench, std::size_t{1} << 20);
  const double memory = calibrate_bandwidth(bench, bench::kMemoryBytes);
  if (!json) {
    call.out.print("{} ({}), {} threads\n", table->name, table->description, pool.num_threads());
    call.out.print("peak {:.1f} GFLOP/s, reads {:.1f} GB/s of 1 MiB, {:.1f} GB/s of 512 MiB\n\n", peak / 1e9,
                   cached / 1e9, memory / 1e9);
  }
  SIGHTLINE_CHECK(run_rows(bench, group));
  if (!json) return 0;
  Json document;
  document.set("isa", std::string(table->name));
  document.set("threads", static_cast<std::int64_t>(pool.num_threads()));
  document.set("peak_flops", peak);
  document.set("bandwidth_1mib", cached);
  document.set("bandwidth_512mib", memory);
  document.set("rows", std::move(rows));
  call.out.print("{}\n", document.dump(2));
  return 0;
}

}  // namespace sightline::apps
