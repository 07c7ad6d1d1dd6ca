#include "sightline/reference/rotate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/random_call.h"

namespace sightline::reference {
namespace {

constexpr double kRounding = 1e-14;

TEST(RotateTest, NeighboursAndHalvesTurnByTheAngleOfTheirPair) {
  const std::vector<double> frequencies = {1.0, 0.1};
  std::vector<double> head = {1, 0, 0, 1, 7, 8};
  rotate(small_rope(RopePairing::kInterleaved), frequencies, 3, head);
  EXPECT_NEAR(head[0], std::cos(3.0), kRounding);
  EXPECT_NEAR(head[1], std::sin(3.0), kRounding);
  EXPECT_NEAR(head[2], -std::sin(0.3), kRounding);
  EXPECT_NEAR(head[3], std::cos(0.3), kRounding);
  EXPECT_EQ(head[4], 7);

  head = {1, 0, 0, 1, 7, 8};
  rotate(small_rope(RopePairing::kHalfSplit), frequencies, 3, head);
  EXPECT_NEAR(head[0], std::cos(3.0), kRounding);
  EXPECT_NEAR(head[2], std::sin(3.0), kRounding);
  EXPECT_NEAR(head[1], -std::sin(0.3), kRounding);
  EXPECT_NEAR(head[3], std::cos(0.3), kRounding);
  EXPECT_EQ(head[5], 8);
}

TEST(RotateTest, InverseUndoesAndTransposeIsTheAdjoint) {
  Rng rng(1);
  RopeSpec rope = small_rope();
  rope.cos_sin_magnitude = 1.3;
  const std::vector<double> frequencies = rope_frequencies(rope, 0);
  const std::vector<double> x = RandomCall::normals(rng, 6), y = RandomCall::normals(rng, 6);
  std::vector<double> turned = x, back = y;
  rotate(rope, frequencies, 5, turned);
  rotate(rope, frequencies, 5, back, Turn::kTranspose);
  double left = 0, right = 0;
  for (std::size_t c = 0; c < 6; ++c) left += turned[c] * y[c];
  for (std::size_t c = 0; c < 6; ++c) right += x[c] * back[c];
  EXPECT_NEAR(left, right, kRounding * 10);
  rotate(rope, frequencies, 5, turned, Turn::kInverse);
  EXPECT_LT(max_difference(turned, x), kRounding);
}

TEST(RotateTest, AMovedKeyIsAFreshKeyAtTheNewPosition) {
  Rng rng(2);
  RopeSpec rope = small_rope(RopePairing::kHalfSplit);
  rope.cos_sin_magnitude = 1.3;
  const std::vector<double> frequencies = rope_frequencies(rope, 0);
  std::vector<double> moved = RandomCall::normals(rng, 6), fresh = moved;
  rotate(rope, frequencies, 9, moved);
  rotate(rope, frequencies, -4, moved, Turn::kMove);
  rotate(rope, frequencies, 5, fresh);
  EXPECT_LT(max_difference(moved, fresh), kRounding);
}

TEST(RotateTest, PairingNoneDoesNothing) {
  std::vector<double> head = {1, 2};
  rotate(RopeSpec{}, {}, 5, head);
  EXPECT_EQ(head, (std::vector<double>{1, 2}));
}

}  // namespace
}  // namespace sightline::reference
