// The choice of an instruction set reaches every command, and bench refuses what it does not know. Times
// are bench rows, not tests.
#include <gtest/gtest.h>

#include "support/subprocess.h"

namespace sightline::testing {
namespace {

RunResult run(std::vector<std::string> args, const std::string& isa) {
  args.insert(args.begin(), SIGHTLINE_PROGRAM);
  RunOptions options;
  options.environment = {{"SIGHTLINE_ISA", isa}};
  return run_program(args, options);
}

TEST(InstructionSetTest, UnknownNameIsWrongUsageOfAnyCommandAndKnownOnesRun) {
  const RunResult refused = run({"explain", "causal"}, "sse9");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("SIGHTLINE_ISA"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("avx512"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(run({"explain", "causal"}, "portable").exit_code, 0);
  const int bf16 = run({"explain", "causal"}, "avx512_bf16").exit_code;
  EXPECT_TRUE(bf16 == 0 || bf16 == 78) << bf16;
}

TEST(BenchCommandTest, RefusesRowsSetsAndFormatsItDoesNotKnow) {
  const RunResult refused = run({"bench", "--rows", "everything"}, "portable");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("'everything'"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("decode"), std::string::npos) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(run({"bench", "--isa", "sse9"}, "portable").exit_code, 2);
  EXPECT_EQ(run({"bench", "--repeats", "1"}, "portable").exit_code, 2);
  EXPECT_EQ(run({"bench", "-o", "yaml"}, "portable").exit_code, 2);
  EXPECT_EQ(run({"bench", "--goals", "--runs", "4", "--list"}, "portable").exit_code, 2);
  EXPECT_EQ(run({"bench", "--goals", "--runs", "5", "--list"}, "portable").exit_code, 0);
}

TEST(BenchCommandTest, ListsWhatRowsTakes) {
  const RunResult listed = run({"bench", "--list"}, "portable");
  EXPECT_EQ(listed.exit_code, 0);
  EXPECT_NE(listed.out.find("\ndecode: "), std::string::npos) << listed.out;
  EXPECT_NE(listed.out.find("\n  tg64 @ d4096\n"), std::string::npos) << listed.out;
}

// A counted row: its verdict does not hang on a time.
TEST(BenchCommandTest, GoalsJudgeAChosenRowInTheFormatAskedFor) {
  const RunResult done =
      run({"bench", "--rows", "pairs-causal-d64-*", "--goals", "-o", "csv", "-t", "1"}, "portable");
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.out.rfind("name,measured,", 0), 0U) << done.out;
  EXPECT_NE(done.out.find("\n\"pairs-causal-d64-T512\",true,"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("\"first\""), std::string::npos) << done.out;
  const RunResult unmet = run({"bench", "--rows", "start-info", "--goals", "-t", "1"}, "portable");
  EXPECT_EQ(unmet.exit_code, 1) << unmet.err;
  EXPECT_NE(unmet.out.find("not measured: no model given"), std::string::npos) << unmet.out;
}

}  // namespace
}  // namespace sightline::testing
