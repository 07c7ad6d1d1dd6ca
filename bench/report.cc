#include "bench/report.h"

#include <fmt/format.h>

namespace sightline::bench {

namespace {

std::string_view limit_name(Limit limit) {
  switch (limit) {
    case Limit::kPeak:
      return "f32 peak";
    case Limit::kPeakBf16:
      return "bf16 peak";
    case Limit::kPeakInt8:
      return "int8 peak";
    case Limit::kBandwidth:
      return "bandwidth";
    case Limit::kReference:
      return "reference";
    case Limit::kSeconds:
      return "seconds";
    case Limit::kCount:
      return "count";
  }
  return "";
}

std::string time_text(double seconds) {
  if (seconds <= 0.0) return "";
  if (seconds < 1e-4) return fmt::format("{:.2f} us", seconds * 1e6);
  return fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string rate_text(const Row& row) {
  if (row.tokens > 0.0) return fmt::format("{:.2f} tokens/s", row.tokens_per_second());
  if (row.work <= 0.0) return "";
  if (row.limit == Limit::kBandwidth) return fmt::format("{:.1f} GB/s", row.rate() / 1e9);
  return fmt::format("{:.1f} {}", row.rate() / 1e9, row.limit == Limit::kPeakInt8 ? "Gop/s" : "GFLOP/s");
}

std::string steady_text(const Row& row) {
  if (row.limit == Limit::kCount) return "counted";
  return fmt::format("{}/{} steady", row.num_steady(), row.runs.size());
}

// A CSV field in quotes, so that commas and quotes within it are kept.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string bytes_text(std::size_t bytes) {
  return bytes >= (std::size_t{1} << 20) ? fmt::format("{} MiB", bytes >> 20)
                                         : fmt::format("{} KiB", bytes >> 10);
}

std::string calibration_text(const Calibration& c) {
  std::string text =
      fmt::format("{} ({}), {} threads\npeak f32 {:.1f}", c.isa, c.description, c.threads, c.peak_f32 / 1e9);
  if (c.peak_bf16 > 0.0) text += fmt::format(", bf16 {:.1f}", c.peak_bf16 / 1e9);
  text += " GFLOP/s";
  if (c.peak_int8 > 0.0) text += fmt::format(", int8 {:.1f} Gop/s", c.peak_int8 / 1e9);
  for (std::size_t i = 0; i < c.reads.size(); ++i) {
    text += fmt::format("{}{:.1f} GB/s of {}", i == 0 ? "; reads " : ", ", c.reads[i].second / 1e9,
                        bytes_text(c.reads[i].first));
  }
  return text;
}

Json calibration_json(const Calibration& c) {
  Json json;
  json.set("isa", c.isa);
  json.set("threads", static_cast<std::int64_t>(c.threads));
  json.set("peak_f32_flops", c.peak_f32);
  json.set("peak_bf16_flops", c.peak_bf16 > 0.0 ? Json(c.peak_bf16) : Json());
  json.set("peak_int8_ops", c.peak_int8 > 0.0 ? Json(c.peak_int8) : Json());
  JsonArray reads;
  for (const auto& [bytes, rate] : c.reads) {
    Json read;
    read.set("working_set_bytes", static_cast<std::int64_t>(bytes));
    read.set("bytes_per_s", rate);
    reads.push_back(std::move(read));
  }
  json.set("reads", std::move(reads));
  return json;
}

}  // namespace

std::string figure_text(const Row& row) {
  if (!row.measured) return "";
  switch (row.limit) {
    case Limit::kReference:
    case Limit::kCount:
      return fmt::format("{:.3f} x", row.figure());
    case Limit::kSeconds:
      return time_text(row.figure());
    default:
      return fmt::format("{:.3f} of {}", row.figure(), limit_name(row.limit));
  }
}

Json row_json(const Row& row) {
  Json json;
  json.set("name", row.name);
  json.set("what", row.what);
  json.set("measured", row.measured);
  json.set("note", row.note);
  if (!row.measured) return json;
  json.set("limit", limit_name(row.limit));
  json.set("figure", row.figure());
  if (row.limit == Limit::kCount) return json;
  json.set("median_s", row.median_seconds());
  json.set("minimum_s", row.minimum_seconds());
  if (row.work > 0.0) json.set("work", row.work);
  if (row.work > 0.0) json.set("rate_per_s", row.rate());
  if (row.tokens > 0.0) json.set("tokens_per_s", row.tokens_per_second());
  JsonArray runs;
  for (const Run& run : row.runs) {
    Json entry;
    entry.set("figure", row.figure(run));
    entry.set("steady", run.steady());
    entry.set("limit_before", run.limit_before);
    entry.set("limit_after", run.limit_after);
    JsonArray seconds;
    for (const double x : run.seconds) seconds.push_back(x);
    entry.set("seconds", std::move(seconds));
    runs.push_back(std::move(entry));
  }
  json.set("runs", std::move(runs));
  return json;
}

Report::Report(Format format, bool with_goals, std::function<void(std::string_view)> write)
    : format_(format), with_goals_(with_goals), write_(std::move(write)) {}

void Report::begin(const Calibration& calibration) {
  switch (format_) {
    case Format::kText:
      write_(calibration_text(calibration) + "\n\n");
      break;
    case Format::kMarkdown:
      write_(calibration_text(calibration) + "\n\n");
      write_(with_goals_
                 ? "| row | time | speed | figure | mark | verdict | runs |\n|---|---|---|---|---|---|---|\n"
                 : "| row | time | speed | figure | runs |\n|---|---|---|---|---|\n");
      break;
    case Format::kCsv:
      write_(
          "name,measured,median_s,minimum_s,work,rate_per_s,tokens_per_s,limit,limit_per_s,figure,steady_"
          "runs,runs,"
          "mark,verdict,what,note\n");
      break;
    case Format::kJson:
      document_ = calibration_json(calibration);
      break;
  }
}

std::string Report::mark(const Row& row) const {
  const Goal* goal = with_goals_ ? goal_of(row.name) : nullptr;
  return goal == nullptr ? "" : mark_text(row, *goal);
}

std::string_view Report::verdict(const Row& row) const {
  return with_goals_ ? to_string(judge(row, goal_of(row.name))) : "";
}

void Report::add(const Row& row) {
  if (with_goals_) {
    const Verdict found = judge(row, goal_of(row.name));
    num_stretch_ += found == Verdict::kStretch ? 1 : 0;
    num_first_ += found == Verdict::kFirst ? 1 : 0;
    num_short_ += found == Verdict::kShort ? 1 : 0;
    num_unmeasured_ += found == Verdict::kNotMeasured ? 1 : 0;
  }
  switch (format_) {
    case Format::kText:
      return add_text(row);
    case Format::kMarkdown:
      return add_markdown(row);
    case Format::kCsv:
      return add_csv(row);
    case Format::kJson:
      break;
  }
  Json json = row_json(row);
  if (with_goals_ && goal_of(row.name) != nullptr) {
    json.set("mark", mark(row));
    json.set("verdict", verdict(row));
  }
  rows_.push_back(std::move(json));
}

void Report::add_text(const Row& row) {
  std::string line = fmt::format("{:<36} ", row.name);
  if (row.measured) {
    line += fmt::format("{:>12} {:>16}  {:<18}", time_text(row.median_seconds()), rate_text(row),
                        figure_text(row));
    if (with_goals_) line += fmt::format(" {:<16} {:<12}", mark(row), verdict(row));
    line += fmt::format(" {:<10} ", steady_text(row));
  } else if (with_goals_) {
    line += fmt::format("{:<16} {:<12} ", mark(row), verdict(row));
  }
  write_(line + row.note + "\n");
}

void Report::add_markdown(const Row& row) {
  const std::string name = cell(row.name);
  if (!row.measured) {
    write_(with_goals_
               ? fmt::format("| {} | | | {} | {} | {} | |\n", name, cell(row.note), mark(row), verdict(row))
               : fmt::format("| {} | | | {} | |\n", name, cell(row.note)));
    return;
  }
  std::string line = fmt::format("| {} | {} | {} | {} |", name, time_text(row.median_seconds()),
                                 rate_text(row), figure_text(row));
  if (with_goals_) line += fmt::format(" {} | {} |", mark(row), verdict(row));
  write_(line + fmt::format(" {} |\n", steady_text(row)));
}

void Report::add_csv(const Row& row) {
  std::string line = quoted(row.name);
  if (row.measured) {
    line +=
        fmt::format(",true,{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{},{:.9g},{:.9g},{},{},", row.median_seconds(),
                    row.minimum_seconds(), row.work, row.rate(), row.tokens_per_second(),
                    limit_name(row.limit), row.limit_rate(), row.figure(), row.num_steady(), row.runs.size());
  } else {
    line += ",false,,,,,,,,,,,";
  }
  line += fmt::format("{},{},{},{}\n", quoted(mark(row)), quoted(verdict(row)), quoted(row.what),
                      quoted(row.note));
  write_(line);
}

std::string Report::summary() const {
  return fmt::format("marks: {} stretch, {} first, {} short, {} not measured", num_stretch_, num_first_,
                     num_short_, num_unmeasured_);
}

void Report::end(const std::vector<std::string>& marks_without_row) {
  if (with_goals_) num_without_row_ = static_cast<int>(marks_without_row.size());
  if (format_ == Format::kJson) {
    document_.set("rows", std::move(rows_));
    if (with_goals_) {
      Json count;
      count.set("stretch", num_stretch_);
      count.set("first", num_first_);
      count.set("short", num_short_);
      count.set("not_measured", num_unmeasured_);
      count.set("without_row", JsonArray(marks_without_row.begin(), marks_without_row.end()));
      document_.set("marks", std::move(count));
    }
    write_(document_.dump(2) + "\n");
  } else if (with_goals_ && format_ != Format::kCsv) {
    write_(fmt::format("\n{}\n", summary()));
    if (num_without_row_ > 0) write_(fmt::format("no row yet: {}\n", fmt::join(marks_without_row, ", ")));
  }
}

}  // namespace sightline::bench
