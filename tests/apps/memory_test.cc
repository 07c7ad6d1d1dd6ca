// Row 112 of the bad-input table: little address space, and a failure of each allocation.
#include <gtest/gtest.h>

#include "support/subprocess.h"

namespace sightline {
namespace {

using testing::RunOptions;
using testing::RunResult;

#ifdef SIGHTLINE_FAIL_ALLOCATION

TEST(MemoryTest, FailureOfAnyAllocationEndsWith71AndOneLine) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--version"},
                                               {"--help"},
                                               {"completion", "zsh"},
                                               {"completion", "--nosuch"}}) {
    const std::vector<std::string> argv = [&] {
      std::vector<std::string> out = {SIGHTLINE_PROGRAM};
      out.insert(out.end(), args.begin(), args.end());
      return out;
    }();
    const int expected = testing::run_program(argv).exit_code;
    int num_failures = 0;
    for (int n = 0;; ++n) {
      ASSERT_LT(n, 5000) << "the failing allocation is never reached";
      const RunResult result =
          testing::run_program(argv, {.environment = {{"LD_PRELOAD", SIGHTLINE_FAIL_ALLOCATION},
                                                      {"SIGHTLINE_FAIL_NEW", std::to_string(n)}}});
      ASSERT_EQ(result.signal, 0) << args.back() << " at allocation " << n;
      if (result.exit_code == expected) break;
      ASSERT_EQ(result.exit_code, 71) << args.back() << " at allocation " << n << ": " << result.err;
      ASSERT_EQ(result.err, "sightline: out of memory\n") << n;
      ++num_failures;
    }
    EXPECT_GT(num_failures, 5) << args.back();
  }
}

TEST(MemoryTest, LittleAddressSpaceIsNeverASignal) {
  // Below about 10 MiB the kernel cannot map the program itself, which ends as a signal before main.
  for (std::size_t mebibytes = 16; mebibytes <= 64; mebibytes += 4) {
    const RunResult result =
        testing::run_program({SIGHTLINE_PROGRAM, "--version"}, {.address_space_bytes = mebibytes << 20});
    EXPECT_EQ(result.signal, 0) << mebibytes << " MiB";
    // 127: the dynamic loader itself had no room for the libraries.
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 71 || result.exit_code == 127)
        << mebibytes << " MiB";
  }
  EXPECT_EQ(
      testing::run_program({SIGHTLINE_PROGRAM, "--version"}, {.address_space_bytes = 64u << 20}).exit_code,
      0);
}

#else
TEST(MemoryTest, FailureOfAnyAllocationEndsWith71AndOneLine) {
  GTEST_SKIP() << "sanitizers own the allocator";
}
#endif

}  // namespace
}  // namespace sightline
