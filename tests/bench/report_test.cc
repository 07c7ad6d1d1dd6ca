#include "bench/report.h"

#include <gtest/gtest.h>

#include "bench/made_up_row.h"

namespace sightline::testing {
namespace {

using bench::Format;
using bench::Row;

Row good_row() {
  Row row = made_up_row("f32-dense-d64-T512", std::vector<bench::Run>(5, made_up_run(1e11, 1e11, 0.001)));
  row.work = 0.88e8;
  row.what = "4 heads, \"all\", and | more";
  row.note = "checked";
  return row;
}

Row missing_row() {
  Row row;
  row.name = "start-info";
  row.measured = false;
  row.note = "not measured: no model given (-m)";
  return row;
}

std::string shown(Format format, bool with_goals, int* unmet = nullptr) {
  std::string text;
  bench::Report report(format, with_goals, [&](std::string_view piece) { text += piece; });
  bench::Calibration machine;
  machine.isa = "avx512";
  machine.threads = 2;
  machine.peak_f32 = 230e9;
  machine.reads = {{std::size_t{1} << 20, 300e9}};
  report.begin(machine);
  report.add(good_row());
  report.add(missing_row());
  report.end();
  if (unmet != nullptr) *unmet = report.num_unmet();
  return text;
}

TEST(BenchReportTest, JsonIsOneDocumentWithEveryRun) {
  const auto json = parse_json(shown(Format::kJson, true), "report");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(*json->find("isa")->as_string(), "avx512");
  EXPECT_TRUE(json->find("peak_bf16_flops")->is_null());
  const JsonArray& rows = *json->find("rows")->as_array();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(*rows[0].find("verdict")->as_string(), "first");
  EXPECT_EQ(rows[0].find("runs")->as_array()->size(), 5U);
  double figure = 0.0;
  ASSERT_TRUE(rows[0].find("figure")->get_number(figure));
  EXPECT_NEAR(figure, 0.88, 1e-12);
  EXPECT_EQ(*rows[1].find("measured")->as_bool(), false);
  EXPECT_EQ(rows[1].find("figure"), nullptr);
  EXPECT_EQ(*json->find("marks")->find("first")->as_int(), 1);
  EXPECT_EQ(*json->find("marks")->find("not_measured")->as_int(), 1);
}

TEST(BenchReportTest, JsonWithoutGoalsSaysNothingOfMarks) {
  const auto json = parse_json(shown(Format::kJson, false), "report");
  ASSERT_TRUE(json) << json.error().message;
  EXPECT_EQ(json->find("marks"), nullptr);
  EXPECT_EQ((*json->find("rows")->as_array())[0].find("verdict"), nullptr);
}

// Fields of one CSV line, quotes taken away.
std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> out{""};
  bool in_quotes = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && in_quotes && i + 1 < line.size() && line[i + 1] == '"') {
      out.back() += line[++i];
    } else if (line[i] == '"') {
      in_quotes = !in_quotes;
    } else if (line[i] == ',' && !in_quotes) {
      out.emplace_back();
    } else {
      out.back() += line[i];
    }
  }
  return out;
}

TEST(BenchReportTest, CsvLinesHaveTheFieldsOfTheHeader) {
  const std::string text = shown(Format::kCsv, true);
  std::vector<std::vector<std::string>> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(fields(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  ASSERT_EQ(lines.size(), 3U) << text;
  for (const auto& line : lines) EXPECT_EQ(line.size(), lines[0].size()) << text;
  const auto field = [&](std::size_t line, const std::string& name) {
    const auto at = std::find(lines[0].begin(), lines[0].end(), name) - lines[0].begin();
    return lines[line][static_cast<std::size_t>(at)];
  };
  EXPECT_EQ(field(1, "figure"), "0.88");
  EXPECT_EQ(field(1, "what"), "4 heads, \"all\", and | more");
  EXPECT_EQ(field(1, "verdict"), "first");
  EXPECT_EQ(field(2, "measured"), "false");
  EXPECT_EQ(field(2, "figure"), "");
  EXPECT_EQ(field(2, "note"), "not measured: no model given (-m)");
}

TEST(BenchReportTest, MarkdownRowsHaveTheColumnsOfTheHeader) {
  for (const bool with_goals : {false, true}) {
    const std::string text = shown(Format::kMarkdown, with_goals);
    std::size_t columns = 0;
    int lines = 0;
    for (std::size_t begin = text.find("| row"); begin < text.size() && text[begin] == '|'; ++lines) {
      const std::size_t end = text.find('\n', begin);
      const auto bars =
          static_cast<std::size_t>(std::count(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                              text.begin() + static_cast<std::ptrdiff_t>(end), '|'));
      if (columns == 0) columns = bars;
      EXPECT_EQ(bars, columns) << text.substr(begin, end - begin);
      begin = end + 1;
    }
    EXPECT_EQ(lines, 4) << text;
  }
}

TEST(BenchReportTest, ABarInAMarkdownCellIsEscaped) {
  std::string text;
  bench::Report report(Format::kMarkdown, false, [&](std::string_view piece) { text += piece; });
  Row row = missing_row();
  row.note = "causal | span";
  report.add(row);
  EXPECT_EQ(text, "| start-info | | | causal \\| span | |\n");
}

TEST(BenchReportTest, TextShowsFigureMarkAndVerdictAndCountsWhatIsNotMet) {
  int unmet = -1;
  const std::string text = shown(Format::kText, true, &unmet);
  EXPECT_NE(text.find("0.880 of f32 peak"), std::string::npos) << text;
  EXPECT_NE(text.find(">= 0.86 (0.90)"), std::string::npos) << text;
  EXPECT_NE(text.find("marks: 0 stretch, 1 first, 0 short, 1 not measured"), std::string::npos) << text;
  EXPECT_EQ(unmet, 1);
  EXPECT_EQ(shown(Format::kText, false).find(">="), std::string::npos);
}

TEST(BenchReportTest, MarksWithoutARowAreNamedAndNotMet) {
  std::string text;
  bench::Report report(Format::kText, true, [&](std::string_view piece) { text += piece; });
  report.begin({});
  report.add(good_row());
  EXPECT_EQ(report.num_unmet(), 0);
  report.end({"backward-memory-*"});
  EXPECT_EQ(report.num_unmet(), 1);
  EXPECT_NE(text.find("no row yet: backward-memory-*"), std::string::npos) << text;
}

}  // namespace
}  // namespace sightline::testing
