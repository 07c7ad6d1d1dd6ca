// Rotary frequencies against values that others derived and printed.
#include "sightline/spec/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sightline {
namespace {

std::string message_of(const auto& result) {
  return result ? std::string("no error") : result.error().message;
}

RopeSpec rope_of(RopeScalingKind kind) {
  RopeSpec rope;
  rope.pairing = RopePairing::kHalfSplit;
  rope.rotary_dim = 128;
  rope.theta = 10000.0;
  rope.scaling.kind = kind;
  rope.scaling.factor = 10.0;
  rope.scaling.original_context = 2048;
  return rope;
}

void expect_near_relative(double value, double expected, double relative, const std::string& what) {
  EXPECT_LE(std::fabs(value - expected), relative * std::fabs(expected))
      << what << ": " << value << " for " << expected;
}

// Head size 128, theta 1e4, original length 2048, factor 10, dynamic at length 16384, llama3 low 1 high 4,
// YaRN beta 32 and 1. Default, dynamic, YaRN (dimension) and llama3 are the literal values of transformers'
// tests/utils/test_modeling_rope_utils.py; the other two columns come from the papers' formulas in another
// program. 7 digits are printed, so half a unit of the last one is the tolerance where it is above 1e-6.
struct Row {
  std::size_t pair;
  double plain, dynamic, yarn, yarn_paper, llama3, ntk;
};
constexpr Row kTable[] = {
    {0, 1.000000e+00, 1.000000e+00, 1.000000e+00, 1.000000e+00, 1.000000e+00, 1.000000e+00},
    {1, 8.659643e-01, 8.093101e-01, 8.659643e-01, 8.659643e-01, 8.659643e-01, 8.348856e-01},
    {8, 3.162278e-01, 1.840431e-01, 3.162278e-01, 3.162278e-01, 3.162278e-01, 2.360565e-01},
    {16, 1.000000e-01, 3.387187e-02, 1.000000e-01, 1.000000e-01, 1.000000e-01, 5.572265e-02},
    {17, 8.659643e-02, 2.741284e-02, 8.347896e-02, 7.710838e-02, 8.659643e-02, 4.652204e-02},
    {24, 3.162278e-02, 6.233884e-03, 2.251542e-02, 1.170724e-02, 3.162278e-02, 1.315369e-02},
    {28, 1.778279e-02, 2.674352e-03, 1.010063e-02, 4.254482e-03, 1.778279e-02, 6.390805e-03},
    {32, 1.000000e-02, 1.147303e-03, 4.240000e-03, 1.655982e-03, 7.778480e-03, 3.105013e-03},
    {36, 5.623413e-03, 4.921960e-04, 1.574556e-03, 6.983287e-04, 1.967544e-03, 1.508591e-03},
    {40, 3.162278e-03, 2.111533e-04, 4.300698e-04, 3.190502e-04, 3.453924e-04, 7.329585e-04},
    {41, 2.738420e-03, 1.708885e-04, 2.738420e-04, 2.738420e-04, 2.738420e-04, 6.119365e-04},
    {48, 1.000000e-03, 3.886131e-05, 1.000000e-04, 1.000000e-04, 1.000000e-04, 1.730196e-04},
    {63, 1.154782e-04, 1.626453e-06, 1.154782e-05, 1.154782e-05, 1.154782e-05, 1.154782e-05},
};

TEST(RopeTest, FrequenciesEqualThePublishedTable) {
  RopeSpec paper = rope_of(RopeScalingKind::kYarn);
  paper.scaling.ramp = YarnRamp::kWavelength;
  const auto plain = rope_frequencies(rope_of(RopeScalingKind::kNone), 16384);
  const auto dynamic = rope_frequencies(rope_of(RopeScalingKind::kDynamicNtk), 16384);
  const auto yarn = rope_frequencies(rope_of(RopeScalingKind::kYarn), 16384);
  const auto yarn_paper = rope_frequencies(paper, 16384);
  const auto llama3 = rope_frequencies(rope_of(RopeScalingKind::kLlama3), 16384);
  const auto ntk = rope_frequencies(rope_of(RopeScalingKind::kNtk), 16384);
  ASSERT_EQ(plain.size(), 64u);
  for (const Row& row : kTable) {
    const auto check = [&](const std::vector<double>& values, double expected, const char* column) {
      expect_near_relative(values[row.pair], expected, 1e-6, fmt::format("{} pair {}", column, row.pair));
    };
    check(plain, row.plain, "default");
    check(dynamic, row.dynamic, "dynamic_ntk");
    check(yarn, row.yarn, "yarn by dimension");
    check(yarn_paper, row.yarn_paper, "yarn by wavelength");
    check(llama3, row.llama3, "llama3");
    check(ntk, row.ntk, "ntk");
  }
}

// Divisors of Llama 3.1 (theta 5e5, factor 8) and 3.2-1B (size 64, factor 32), 6 decimals printed.
TEST(RopeTest, Llama31DivisorsAreThoseOfTheReleasedModels) {
  RopeSpec rope = rope_of(RopeScalingKind::kLlama3);
  rope.theta = 500000.0;
  rope.scaling.factor = 8.0;
  rope.scaling.original_context = 8192;
  const auto divisors = [](const RopeSpec& spec) {
    RopeSpec plain = spec;
    plain.scaling = {};
    const auto scaled = rope_frequencies(spec, 0);
    auto out = rope_frequencies(plain, 0);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] /= scaled[i];
    return out;
  };
  const auto llama31 = divisors(rope);
  for (std::size_t i = 0; i <= 28; ++i) EXPECT_EQ(llama31[i], 1.0) << i;
  expect_near_relative(llama31[29], 1.207484, 1e-6, "29");
  expect_near_relative(llama31[30], 1.553415, 1e-6, "30");
  expect_near_relative(llama31[32], 2.694530, 1e-6, "32");
  expect_near_relative(llama31[34], 5.257327, 1e-6, "34");
  for (std::size_t i = 35; i < 64; ++i) EXPECT_NEAR(llama31[i], 8.0, 1e-14) << i;

  rope.rotary_dim = 64;
  rope.scaling.factor = 32.0;
  const auto llama32 = divisors(rope);
  EXPECT_EQ(llama32[14], 1.0);
  EXPECT_GT(llama32[15], 1.0);
  EXPECT_LT(llama32[17], 31.9);
  for (std::size_t i = 18; i < 32; ++i) EXPECT_NEAR(llama32[i], 32.0, 1e-13) << i;
}

// gpt-oss: ramp ends 8.0928 and 17.3980 without floor and ceiling, for size 64, theta 150000, L 4096.
TEST(RopeTest, YarnWithoutTruncationRampsBetweenTheRealEnds) {
  RopeSpec rope = rope_of(RopeScalingKind::kYarn);
  rope.rotary_dim = 64;
  rope.theta = 150000.0;
  rope.scaling.factor = 32.0;
  rope.scaling.original_context = 4096;
  rope.scaling.truncate = false;
  const auto scaled = rope_frequencies(rope, 0);
  RopeSpec plain = rope;
  plain.scaling = {};
  const auto base = rope_frequencies(plain, 0);
  EXPECT_EQ(scaled[8], base[8]);
  const double share = (10 - 8.0928) / (17.3980 - 8.0928);
  expect_near_relative(scaled[10], base[10] * (share / 32 + 1 - share), 2e-5, "pair 10");  // 5 digits known
  expect_near_relative(scaled[18], base[18] / 32, 1e-14, "pair 18");
  expect_near_relative(yarn_magnitude(32.0), 1.346574, 1e-6, "attention factor");
}

TEST(RopeTest, LinearDividesEveryAngleByTheFactor) {
  const auto plain = rope_frequencies(rope_of(RopeScalingKind::kNone), 0);
  const auto linear = rope_frequencies(rope_of(RopeScalingKind::kLinear), 0);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(linear[i], plain[i] / 10.0);
}

TEST(RopeTest, DynamicIsPlainUpToTheOriginalLength) {
  const auto plain = rope_frequencies(rope_of(RopeScalingKind::kNone), 0);
  EXPECT_EQ(rope_frequencies(rope_of(RopeScalingKind::kDynamicNtk), 2048), plain);
  EXPECT_NE(rope_frequencies(rope_of(RopeScalingKind::kDynamicNtk), 2049), plain);
}

TEST(RopeTest, LongRopeTakesTheShortListWithinTheOriginalContext) {
  RopeSpec rope = rope_of(RopeScalingKind::kLongRope);
  rope.rotary_dim = 4;
  rope.scaling.short_divisors = {1.0, 2.0};
  rope.scaling.long_divisors = {3.0, 5.0};
  EXPECT_EQ(rope_frequencies(rope, 2048), (std::vector<double>{1.0, 0.01 / 2.0}));
  EXPECT_EQ(rope_frequencies(rope, 2049), (std::vector<double>{1.0 / 3.0, 0.01 / 5.0}));
  rope.scaling.kind = RopeScalingKind::kDivisors;
  EXPECT_EQ(rope_frequencies(rope, 1), (std::vector<double>{1.0 / 3.0, 0.01 / 5.0}));
}

TEST(RopeTest, TwoRotaryDimensionsHaveOneFrequencyOfOneUnderEveryNtk) {
  for (const auto kind : {RopeScalingKind::kNtk, RopeScalingKind::kDynamicNtk}) {
    RopeSpec rope = rope_of(kind);
    rope.rotary_dim = 2;
    EXPECT_EQ(rope_frequencies(rope, 100000), std::vector<double>{1.0});
  }
}

TEST(RopeTest, MagnitudesAreThosePrinted) {
  // YaRN (scores take the square) at factors 2, 4, 16, 32; Phi-3 from 4k to 128k.
  expect_near_relative(yarn_magnitude(2), 1.06931, 5e-6, "2");
  expect_near_relative(yarn_magnitude(4), 1.13863, 5e-6, "4");
  expect_near_relative(yarn_magnitude(16), 1.27726, 5e-6, "16");
  EXPECT_EQ(yarn_magnitude(1), 1.0);
  EXPECT_EQ(yarn_magnitude(0.5), 1.0);
  expect_near_relative(longrope_magnitude(32, 4096), 1.190238, 1e-6, "phi3");
}

TEST(RopeTest, PairsAreNeighboursOrHalves) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  rope.pairing = RopePairing::kInterleaved;
  EXPECT_EQ(rope_pair(rope, 3).first, 6);
  EXPECT_EQ(rope_pair(rope, 3).second, 7);
  rope.pairing = RopePairing::kHalfSplit;
  EXPECT_EQ(rope_pair(rope, 3).first, 3);
  EXPECT_EQ(rope_pair(rope, 3).second, 7);
}

TEST(RopeTest, InCacheDistanceIsCappedAtTheCache) {
  EXPECT_EQ(in_cache_rope_pos(50, 50, 64), 50);  // the cache is not full yet
  EXPECT_EQ(in_cache_rope_pos(63, 63, 64), 63);  // full: the first key is 63 back
  EXPECT_EQ(in_cache_rope_pos(100, 100, 64), 63);
  EXPECT_EQ(in_cache_rope_pos(1100, 100, 64), 1063);
}

TEST(RopeTest, PairingNoneHasNoFrequenciesAndNeedsNoSizes) {
  EXPECT_TRUE(rope_frequencies(RopeSpec{}, 10).empty());
  EXPECT_TRUE(validate(RopeSpec{}, 64));
}

TEST(RopeTest, RefusalsNameFieldExpectedAndGot) {
  using Change = void (*)(RopeSpec&);
  struct Refusal {
    Change change;
    const char* message;
  };
  for (const auto& [change, message] : {
           Refusal{[](RopeSpec& r) { r.rotary_dim = 127; }, "rotary_dim = 127"},
           Refusal{[](RopeSpec& r) { r.rotary_dim = 130; }, "2 to qk_head_dim = 128"},
           Refusal{[](RopeSpec& r) { r.rotary_dim = 0; }, "rotary_dim = 0"},
           Refusal{[](RopeSpec& r) { r.theta = 0; }, "theta = 0"},
           Refusal{[](RopeSpec& r) { r.theta = NAN; }, "theta = nan"},
           Refusal{[](RopeSpec& r) { r.scaling.factor = -1; }, "factor = -1"},
           Refusal{[](RopeSpec& r) { r.scaling.original_context = 0; }, "original_context = 0, yarn needs"},
           Refusal{[](RopeSpec& r) { r.scaling.beta_fast = 1; }, "beta_fast = 1"},
           Refusal{[](RopeSpec& r) { r.theta = 1; }, "theta = 1"},
           Refusal{[](RopeSpec& r) { r.cos_sin_magnitude = INFINITY; }, "cos_sin_magnitude = inf"},
           Refusal{[](RopeSpec& r) { r.scaling.kind = RopeScalingKind::kDivisors; },
                   "long_divisors has 0 entries"},
           Refusal{[](RopeSpec& r) {
                     r.scaling.kind = RopeScalingKind::kDivisors;
                     r.scaling.long_divisors.assign(64, 1.0);
                     r.scaling.long_divisors[5] = 0.0;
                   },
                   "long_divisors[5] = 0"},
           Refusal{[](RopeSpec& r) {
                     r.scaling.kind = RopeScalingKind::kLongRope;
                     r.scaling.long_divisors.assign(64, 1.0);
                     r.scaling.short_divisors.assign(63, 1.0);
                   },
                   "short_divisors has 63"},
           Refusal{[](RopeSpec& r) {
                     r.scaling.kind = RopeScalingKind::kLlama3;
                     r.scaling.high_freq_factor = 1.0;
                   },
                   "high_freq_factor = 1"},
       }) {
    RopeSpec rope = rope_of(RopeScalingKind::kYarn);
    ASSERT_TRUE(validate(rope, 128));
    change(rope);
    EXPECT_NE(message_of(validate(rope, 128)).find(message), std::string::npos)
        << message_of(validate(rope, 128));
  }
}

TEST(RopeTest, WordsReadBack) {
  for (const auto kind : {RopeScalingKind::kNone, RopeScalingKind::kLinear, RopeScalingKind::kNtk,
                          RopeScalingKind::kDynamicNtk, RopeScalingKind::kYarn, RopeScalingKind::kLongRope,
                          RopeScalingKind::kLlama3, RopeScalingKind::kDivisors}) {
    EXPECT_EQ(parse_rope_scaling_kind(to_string(kind)), kind);
  }
  EXPECT_EQ(parse_rope_pairing("half_split"), RopePairing::kHalfSplit);
  EXPECT_FALSE(parse_rope_pairing("halves"));
}

}  // namespace
}  // namespace sightline
