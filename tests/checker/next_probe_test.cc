#include "checker/next_probe.h"

#include <gtest/gtest.h>

namespace sightline::checker {
namespace {

Candidate candidate(std::string_view text) { return {{parse_fault(text).value()}, {}}; }

// Only the shape, the spec and which outputs are there are looked at.
Observation seen(const char* mask) {
  Observation o;
  o.spec.heads = {4, 2, 8, 6};
  o.spec.mask = parse_mask(mask).value();
  o.spec.rope.pairing = RopePairing::kHalfSplit;
  o.spec.rope.rotary_dim = 8;
  o.kv_coords = o.q_coords = coords_range(0, 12);
  o.out = o.lse = {0.0};
  return o;
}

TEST(NextProbeTest, WhatAnswersAlikeEverywhereIsNotAskedAgain) {
  const std::vector<Candidate> alike{candidate("rope.base:theta=500"), candidate("rope.base:theta=500")};
  EXPECT_EQ(next_probe(seen("causal"), alike), "");
  const std::vector<Candidate> scales{candidate("score.scale/twice"),
                                      candidate("score.scale/factor:factor=0.35355339059327373")};
  EXPECT_EQ(next_probe(seen("causal"), scales), "");
}

TEST(NextProbeTest, TheFirstChangeThatPartsAllIsAskedFor) {
  const auto asked = [](const char* mask, const char* a, const char* b) {
    const std::vector<Candidate> two{candidate(a), candidate(b)};
    const std::string text = next_probe(seen(mask), two);
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(asked("causal", "cache.position_offset", "mask.top_left_alignment"),
            "tokens in calls of 5, on the cache of those before");
  EXPECT_EQ(asked("causal", "rope.low_precision/positions", "rope.table_bounds:rows=4000"),
            "rotary positions beyond 4096");
  EXPECT_EQ(asked("causal", "grad.delta_term", "grad.mask_mismatch"), "gradients of one call");
  EXPECT_EQ(asked("causal", "mask.stale_or_misbound/bias_heads", "mask.composition/bias_ignored"),
            "an additive bias");
  EXPECT_EQ(asked("causal", "mask.padding_ignored", "rope.table_bounds:rows=4000"),
            "rotary positions beyond 4096");
}

TEST(NextProbeTest, WherePairsRemainTheirNumberIsSaid) {
  const std::vector<Candidate> three{candidate("rope.base:theta=500"), candidate("rope.base:theta=500"),
                                     candidate("rope.pairing")};
  const std::string text = next_probe(seen("causal"), three);
  EXPECT_NE(text.find("that tells apart 2 of 3 pairs"), std::string::npos) << text;
}

}  // namespace
}  // namespace sightline::checker
