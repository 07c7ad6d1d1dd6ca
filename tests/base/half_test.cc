#include "sightline/base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace sightline {
namespace {

TEST(HalfTest, EveryF16RoundTripsThroughF32) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const F16 x{static_cast<std::uint16_t>(bits)};
    const float f = to_f32(x);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(to_f32(to_f16(f))));
    } else {
      EXPECT_EQ(to_f16(f).bits, bits);
    }
  }
}

TEST(HalfTest, F16TiesGoToEvenAndLargeValuesToInfinity) {
  EXPECT_EQ(to_f16(1.0F + 0x1.0p-11F).bits, to_f16(1.0F).bits);
  EXPECT_EQ(to_f32(to_f16(1.0F + 3 * 0x1.0p-11F)), 1.0F + 4 * 0x1.0p-11F);
  EXPECT_EQ(to_f32(to_f16(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(to_f32(to_f16(65520.0F))));
  EXPECT_EQ(to_f16(0x1.0p-25F).bits, 0);
  EXPECT_EQ(to_f16(std::nextafter(0x1.0p-25F, 1.0F)).bits, 1);
}

TEST(HalfTest, Bf16TiesGoToEvenAndNanStaysNan) {
  EXPECT_EQ(to_f32(to_bf16(1.0F + 0x1.0p-8F)), 1.0F);
  EXPECT_EQ(to_f32(to_bf16(1.0F + 3 * 0x1.0p-8F)), 1.0F + 4 * 0x1.0p-8F);
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::numeric_limits<float>::signaling_NaN()))));
  EXPECT_TRUE(std::isinf(to_f32(to_bf16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace sightline
