#include "sightline/spec/row_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace sightline {
namespace {

using Rows = std::vector<std::int64_t>;

// [heads, a, b] transposed to [heads, b, a], as converters do it with reshape and swapaxes.
Rows swapped(const Rows& rows, std::int64_t a, std::int64_t b) {
  Rows out;
  for (std::int64_t head = 0; head < std::ssize(rows); head += a * b) {
    for (std::int64_t j = 0; j < b; ++j) {
      for (std::int64_t i = 0; i < a; ++i) out.push_back(rows[static_cast<std::size_t>(head + i * b + j)]);
    }
  }
  return out;
}
Rows to_neighbours(const Rows& halves, int dim) { return swapped(halves, 2, dim / 2); }
Rows to_halves(const Rows& neighbours, int dim) { return swapped(neighbours, dim / 2, 2); }

Rows counted(std::int64_t n) {
  Rows rows(static_cast<std::size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

TEST(RowOrderTest, EachMistakeIsTheConvertersStepsWithAnotherWidth) {
  for (const int width : {2, 4, 6, 12, 24}) {
    const Rows right = counted(24);  // 3 heads of 8
    EXPECT_EQ(misplaced_rows(RowMistake::kWritten, 24, 8, width, RopePairing::kHalfSplit),
              to_halves(to_neighbours(right, width), 8))
        << width;
    EXPECT_EQ(misplaced_rows(RowMistake::kRead, 24, 8, width, RopePairing::kHalfSplit),
              to_halves(to_neighbours(right, 8), width))
        << width;
  }
}

TEST(RowOrderTest, RowsThatShouldBeNeighboursAreMisplacedAlike) {
  for (const RowMistake mistake : {RowMistake::kWritten, RowMistake::kRead}) {
    const Rows of_halves = misplaced_rows(mistake, 24, 8, 6, RopePairing::kHalfSplit);
    // The same rows, written as neighbours: row i of the wrong ones holds what the wrong halves hold there.
    const Rows names = to_neighbours(counted(24), 8);
    Rows expected;
    for (const std::int64_t row : to_neighbours(of_halves, 8)) {
      expected.push_back(std::ranges::find(names, row) - names.begin());
    }
    EXPECT_EQ(misplaced_rows(mistake, 24, 8, 6, RopePairing::kInterleaved), expected);
  }
}

TEST(RowOrderTest, NoMistakeMovesNothingAndWidthsAreTheOtherEvenDivisors) {
  EXPECT_EQ(misplaced_rows(RowMistake::kNone, 24, 8, 6, RopePairing::kHalfSplit), counted(24));
  EXPECT_EQ(misplaced_rows(RowMistake::kNone, 24, 8, 6, RopePairing::kInterleaved), counted(24));
  EXPECT_EQ(misplaced_rows(RowMistake::kRead, 24, 8, 8, RopePairing::kHalfSplit), counted(24));
  EXPECT_EQ(other_head_widths(24, 8), (std::vector<int>{2, 4, 6, 12, 24}));
  EXPECT_TRUE(other_head_widths(2, 2).empty());
}

}  // namespace
}  // namespace sightline
