// Uses the helpers of tests/ in a fuzz target: what they would report as a failed test ends the process.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "fuzz_check.h"

namespace sightline {

/// Runs `body`, inside which EXPECT_ and ASSERT_ macros may fail.
template <typename Body>
void fuzz_with_expectations(const Body& body) {
  ::testing::TestPartResultArray failures;
  {
    const ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
    body();
  }
  for (int i = 0; i < std::min(failures.size(), 5); ++i) {
    std::fprintf(stderr, "%s\n", failures.GetTestPartResult(i).message());
  }
  fuzz_check(failures.size() == 0);
}

}  // namespace sightline
