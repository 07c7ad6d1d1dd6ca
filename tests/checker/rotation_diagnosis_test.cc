// Rotations that are left out, undeclared, turned otherwise or not turned again are told apart.
#include <gtest/gtest.h>

#include "checker/observed.h"
#include "sightline/checker/diagnose.h"
#include "sightline/checker/named_fault.h"

namespace sightline::checker {
namespace {

TEST(DiagnoseTest, RotationsThatAreLeftOutOrTurnedOtherwiseAreNamed) {
  const char* cases[] = {"rope.partial_dim/none",
                         "rope.partial_dim/keys_unrotated",
                         "rope.partial_dim/queries_unrotated",
                         "rope.pairing/all_turned_back",
                         "rope.pairing/keys_turned_back",
                         "cache.shift_rerotation/all_twice",
                         "mask.causal_dropped/ahead",
                         "mask.causal_dropped/ahead:later=3"};
  for (const char* text : cases) {
    const Fault fault = parse_fault(text).value();
    std::vector<Observation> seen{random_observation(usual_spec("causal"), 20, {}, 6, 1),
                                  random_observation(usual_spec("causal"), 24, {}, 24, 2)};
    for (Observation& o : seen) observe(o, std::span(&fault, 1));
    const Report report = diagnose(seen).value();
    ASSERT_EQ(report.verdict, Verdict::kFault) << text << "\n" << to_text(report);
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(full_name(report.faults[0]), text_of_name(text)) << to_text(report);
  }
}

TEST(DiagnoseTest, ARotationThatNobodyDeclaredIsNamedWithItsBase) {
  for (const RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
    AttentionSpec rotated = usual_spec("causal");
    rotated.rope.pairing = pairing;
    rotated.rope.theta = pairing == RopePairing::kHalfSplit ? 10000 : 500000;
    AttentionSpec declared = rotated;
    declared.rope = {};
    std::vector<Observation> seen;
    for (const std::uint64_t seed : {1, 2}) {
      seen.push_back(random_observation(rotated, 20, {}, 12, seed));
      observe(seen.back(), {});
      seen.back().spec = declared;
    }
    const Report report = diagnose(seen).value();
    ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
    EXPECT_EQ(full_name(report.faults[0]), pairing == RopePairing::kHalfSplit
                                               ? "rope.partial_dim/rotated_halves"
                                               : "rope.partial_dim/rotated_neighbours");
    EXPECT_EQ(report.faults[0].parameters[0].value, rotated.rope.theta);
  }
}

TEST(DiagnoseTest, SingleTokensWhosePositionsRestartAreNoRotationLeftOut) {
  for (const char* text : {"cache.position_offset", "cache.position_offset/queries"}) {
    const Fault fault = parse_fault(text).value();
    std::vector<Observation> seen;
    for (const std::uint64_t seed : {1, 2}) {
      seen.push_back(random_observation(usual_spec("causal"), 4, {0, 1, 2, 3}, 4, seed));
      observe(seen.back(), std::span(&fault, 1));
    }
    const Report report = diagnose(seen).value();
    ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
    EXPECT_EQ(full_name(report.faults[0]), text);
  }
}

// A cache that makes room moves keys of its first call; where a part rotates, that part alone has to turn.
TEST(DiagnoseTest, KeysThatMovedAreNamedWithTheDistanceAndTheKeysThatStayed) {
  for (const char* text :
       {"cache.shift_rerotation/moved:moved=3,kept=2", "cache.shift_rerotation/over_all:moved=3,kept=2"}) {
    const Fault fault = parse_fault(text).value();
    std::vector<Observation> probes;
    for (const std::uint64_t seed : {41U, 42U}) {
      AttentionSpec spec = usual_spec("causal");
      spec.rope.rotary_dim = 4;  // of 8
      probes.push_back(random_observation(spec, 12, {}, 5, seed));
      observe(probes.back(), std::span(&fault, 1));
    }
    const Report report = diagnose(probes).value();
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults[0].variant, fault.kind->variant) << to_text(report);
    EXPECT_TRUE(report.faults[0].certain) << to_text(report);
    ASSERT_EQ(report.faults[0].parameters.size(), 2U);
    EXPECT_EQ(report.faults[0].parameters[0].value, 3) << to_text(report);
    EXPECT_EQ(report.faults[0].parameters[1].value, 2) << to_text(report);
  }
}

}  // namespace
}  // namespace sightline::checker
