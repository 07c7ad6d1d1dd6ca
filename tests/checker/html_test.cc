// The page of a report is one file that holds its data, and no text of the data can leave its place.
#include "sightline/checker/html.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/subprocess.h"

namespace sightline::checker {
namespace {

Report sample() {
  Report report;
  report.verdict = Verdict::kFault;
  report.summary = "fault: </script><b>bold</b> & \"quoted\"";
  report.faults.push_back({.slug = "mask.top_left_alignment",
                           .variant = "",
                           .what = "<i>what</i>",
                           .parameters = {{"keys", 1, ""}},
                           .misfit = 0.5,
                           .certain = true,
                           .idiom = "tril()",
                           .fix = "positions"});
  report.evidence.push_back({"pairs differ", 3});
  report.ranked.push_back({"the declared meaning", 1e300 * 1e300});
  report.row_errors = {0, 0.5, 1e6};
  report.visible_set = VisibleSet{2, 3, {1, 1, 0, 1, 1, 1}, {1, 0, 0, 1, 1, 1}};
  report.inside = InsideView{.head = 3,
                             .num_queries = 2,
                             .num_keys = 3,
                             .declared = {1, 0, 0, 0.25, 0.75, 0},
                             .explained = {0.5, 0.5, 0, 0.25, 0.25, 0.5},
                             .explained_by = "rope.base:theta=500",
                             .angles = {1, 0.01},
                             .explained_angles = {1, 0.05}};
  report.blind_spots = {"no gradients"};
  return report;
}

std::string page() { return to_html(sample(), {"GQA <6/2>", {"guessed"}, "sightline check a.npz"}); }

TEST(HtmlTest, TextOfTheDataStaysData) {
  const std::string html = page();
  EXPECT_EQ(html.find("<b>bold"), std::string::npos);
  EXPECT_EQ(html.find("<i>what"), std::string::npos);
  EXPECT_NE(html.find("\\u003c/script>\\u003cb>bold"), std::string::npos);
  // The data ends where the page's own element does.
  const std::size_t begin = html.find("id=\"data\">") + 10;
  const std::string data = html.substr(begin, html.find("</script>", begin) - begin);
  const Json json = parse_json(data, "data").value();
  EXPECT_EQ(*json.find("report")->find("summary")->as_string(), sample().summary);
  EXPECT_EQ(*json.find("reproducer")->as_string(), "sightline check a.npz");
}

TEST(HtmlTest, NothingIsLoadedFromElsewhere) {
  const std::string html = page();
  for (const char* word : {"http://", "https://", "src=", "@import", "url("}) {
    EXPECT_EQ(html.find(word), std::string::npos) << word;
  }
}

TEST(HtmlTest, ABrowserDrawsEveryPart) {
  const char* browser = "/usr/bin/chromium";
  if (!std::ifstream(browser)) GTEST_SKIP() << "no " << browser;
  const std::string path = ::testing::TempDir() + "report.html";
  std::ofstream(path) << page();
  const testing::RunResult result =
      testing::run_program({browser, "--headless", "--no-sandbox", "--disable-gpu",
                            "--virtual-time-budget=3000", "--dump-dom", "file://" + path},
                           {.timeout_seconds = 120});
  const auto shows = [&](std::string_view text) { return result.out.find(text) != std::string::npos; };
  EXPECT_TRUE(shows("data-drawn=\"yes\"")) << result.err;
  for (const char* text :
       {"Who sees whom", "Error of each query", "Hypotheses by misfit", "not finite",
        "Weights of query head 3", "Angle of each rotary pair", "rope.base:theta=500: 1 to 0.05",
        "no gradients", "sightline check a.npz", "usual cause: tril()", "keys = 1", "&lt;i&gt;what"}) {
    EXPECT_TRUE(shows(text)) << text;
  }
}

}  // namespace
}  // namespace sightline::checker
