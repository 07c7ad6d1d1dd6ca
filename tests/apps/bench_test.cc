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

TEST(BenchCommandTest, RefusesRowsAndSetsItDoesNotKnow) {
  EXPECT_EQ(run({"bench", "--rows", "everything"}, "portable").exit_code, 2);
  EXPECT_EQ(run({"bench", "--isa", "sse9"}, "portable").exit_code, 2);
  EXPECT_EQ(run({"bench", "--repeats", "1"}, "portable").exit_code, 2);
}

}  // namespace
}  // namespace sightline::testing
