// Rotation: the formula, both pairings, and that strides do not enter the bits.
#include "sightline/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace sightline::kernels {
namespace {

TEST(RopeTest, CosSinAreRoundedOnceFromDouble) {
  const std::vector<double> frequencies = {1.0, 0.1, 1e-4};
  float c[3];
  float s[3];
  for (const std::int64_t pos : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 31}) {
    rope_cos_sin(frequencies, pos, 1.25, c, s);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(c[i], static_cast<float>(1.25 * std::cos(static_cast<double>(pos) * frequencies[i])));
      EXPECT_EQ(s[i], static_cast<float>(1.25 * std::sin(static_cast<double>(pos) * frequencies[i])));
    }
  }
}

TEST(RopeTest, PairingsRotateTheirComponentsAndLeaveTheRest) {
  const float c[2] = {0.5F, 0.25F};
  const float s[2] = {2.0F, 4.0F};
  const std::vector<float> x = {1, 2, 3, 4, 5};
  std::vector<float> y = x;
  rotate_head({2, 2, 1}, c, s, x.data(), 1, y.data(), 1);
  EXPECT_EQ(y, (std::vector<float>{1 * 0.5F - 2 * 2.0F, 1 * 2.0F + 2 * 0.5F, 3 * 0.25F - 4 * 4.0F,
                                   3 * 4.0F + 4 * 0.25F, 5}));
  y = x;
  rotate_head({2, 1, 2}, c, s, y.data(), 1, y.data(), 1);
  EXPECT_EQ(y, (std::vector<float>{1 * 0.5F - 3 * 2.0F, 2 * 0.25F - 4 * 4.0F, 1 * 2.0F + 3 * 0.5F,
                                   2 * 4.0F + 4 * 0.25F, 5}));
}

TEST(RopeTest, StridesDoNotEnterTheBitsAndBackUndoes) {
  const std::vector<double> frequencies = {1.0, 0.3, 0.07};
  float c[3];
  float s[3];
  rope_cos_sin(frequencies, 11, 1.0, c, s);
  const std::vector<float> x = {0.1F, -2.5F, 3.3F, 0.7F, 1.9F, -0.2F};
  std::vector<float> dense(6);
  std::vector<float> spread(6 * 16);
  rotate_head({3, 1, 3}, c, s, x.data(), 1, dense.data(), 1);
  rotate_head({3, 1, 3}, c, s, x.data(), 1, spread.data(), 16);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(dense[i], spread[i * 16]);
  rotate_head_back({3, 1, 3}, c, s, dense.data(), 1, dense.data(), 1);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(dense[i], x[i], 1e-6) << "two roundings of numbers up to 4";
}

}  // namespace
}  // namespace sightline::kernels
