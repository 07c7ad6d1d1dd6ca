#include "bench/families.h"

#include <gtest/gtest.h>

#include <set>

namespace sightline::testing {
namespace {

std::vector<std::string> names_of(std::string_view pattern) {
  std::vector<std::string> names;
  const auto rows = bench::select_rows(pattern);
  if (!rows) return {"refused: " + rows.error().message};
  for (const bench::RowCase& row : *rows) names.push_back(row.name);
  return names;
}

TEST(BenchRowsTest, NamesAreUniqueAndNoFamilyIsARow) {
  std::set<std::string> names;
  for (const bench::RowFamily& family : bench::row_families()) {
    EXPECT_TRUE(names.insert(std::string(family.name)).second) << family.name;
    EXPECT_FALSE(family.rows().empty()) << family.name;
    for (const bench::RowCase& row : family.rows()) EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_EQ(names.count("all"), 0U);
}

TEST(BenchRowsTest, APatternIsAFamilyANameOrAGlob) {
  EXPECT_EQ(names_of("call"), std::vector<std::string>{"call-1x1x64"});
  EXPECT_EQ(names_of("tg64 @ d4096"), std::vector<std::string>{"tg64 @ d4096"});
  EXPECT_EQ(
      names_of("f32-causal-d64-*"),
      (std::vector<std::string>{"f32-causal-d64-T512", "f32-causal-d64-T2048", "f32-causal-d64-T4096"}));
  EXPECT_EQ(names_of("f32-causal-d6?-T512"), std::vector<std::string>{"f32-causal-d64-T512"});
}

TEST(BenchRowsTest, PartsAddUpInTheOrderOfTheFamiliesAndOnce) {
  EXPECT_EQ(names_of("pp*,call,pp512,f32-dense-d64-T512"),
            (std::vector<std::string>{"f32-dense-d64-T512", "call-1x1x64", "pp512", "pp512 @ d4096"}));
  std::size_t all = 0;
  for (const bench::RowFamily& family : bench::row_families()) all += family.rows().size();
  EXPECT_EQ(names_of("all").size(), all);
}

TEST(BenchRowsTest, APartThatChoosesNothingIsNamed) {
  for (const char* pattern : {"everything", "call,bf32-*", "", "call,"}) {
    const auto names = names_of(pattern);
    ASSERT_EQ(names.size(), 1U) << pattern;
    EXPECT_NE(names[0].find("refused: --rows: '"), std::string::npos) << names[0];
  }
  EXPECT_NE(names_of("call,bf32-*")[0].find("'bf32-*'"), std::string::npos);
}

// A program that only fails: its row is described and reported, and nothing is timed.
TEST(BenchRowsTest, AModelIsShownByTheNameOfItsFileAlone) {
  bench::Bench bench;
  bench.program_path = "/bin/false";
  bench.model_path = "/some/folder/model.gguf";
  std::vector<bench::Row> reported;
  bench.report = [&](const bench::Row& row) { reported.push_back(row); };
  const auto rows = bench::select_rows("start");
  ASSERT_TRUE(rows) << rows.error().message;
  for (const bench::RowCase& row : *rows) ASSERT_TRUE(row.run(bench));
  ASSERT_EQ(reported.size(), 2U);
  EXPECT_EQ(reported[0].what, "a new process: sightline --version");
  EXPECT_EQ(reported[1].what, "a new process: sightline info model.gguf");
  for (const bench::Row& row : reported) EXPECT_EQ(row.note, "not measured: exit status 1");
}

TEST(BenchRowsTest, GlobsMatchTheWholeName) {
  EXPECT_TRUE(bench::matches_glob("a*c", "abbc"));
  EXPECT_TRUE(bench::matches_glob("a*b*c", "axbxbxc"));
  EXPECT_TRUE(bench::matches_glob("*", ""));
  EXPECT_TRUE(bench::matches_glob("abc**", "abc"));
  EXPECT_FALSE(bench::matches_glob("a*c", "abcd"));
  EXPECT_FALSE(bench::matches_glob("bc", "abc"));
  EXPECT_FALSE(bench::matches_glob("a?", "a"));
  EXPECT_FALSE(bench::matches_glob("", "a"));
  const std::string many(60, 'a');  // no pattern takes more than length x length steps
  EXPECT_FALSE(bench::matches_glob("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", many));
}

}  // namespace
}  // namespace sightline::testing
