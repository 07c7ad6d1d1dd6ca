// Forms of a kind that real releases and converters had beyond its usual one are named with their numbers.
#include <gtest/gtest.h>

#include <functional>

#include "checker/observed.h"
#include "sightline/checker/diagnose.h"
#include "sightline/checker/named_fault.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {
namespace {

// What real releases did beyond the usual form of a kind.
TEST(DiagnoseTest, FormsThatRealReleasesHadAreNamed) {
  const auto named = [](const std::vector<Observation>& probes, const char* text) {
    const Report report = diagnose(probes).value();
    const Fault fault = parse_fault(text).value();
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults[0].slug, fault.kind->slug) << to_text(report);
    EXPECT_EQ(report.faults[0].variant, fault.kind->variant) << to_text(report);
    EXPECT_TRUE(report.faults[0].certain) << to_text(report);
    for (std::size_t i = 0; i < fault.values.size(); ++i) {
      EXPECT_EQ(report.faults[0].parameters[i].value, fault.values[i]) << to_text(report);
    }
  };
  const auto probes = [](const char* mask, std::vector<std::int64_t> begins, const char* text,
                         const std::function<void(Observation&)>& prepare) {
    std::vector<Observation> all;
    for (const std::uint64_t seed : {21U, 22U}) {
      Observation o = random_observation(usual_spec(mask), 9, begins, 9, seed);
      prepare(o);
      const Fault fault = parse_fault(text).value();
      observe(o, std::span(&fault, 1));
      all.push_back(std::move(o));
    }
    return all;
  };
  const auto nothing = [](Observation&) {};
  const char* prompt = "mask.window_off_by_one/prompt:keys=1";
  named(probes("causal & window(4)", {0, 6, 7, 8}, prompt, nothing), prompt);
  const char* both_sides = "mask.window_scope/both_sides";
  named(probes("window(3) & ahead(1)", {}, both_sides, nothing), both_sides);
  const char* ring = "cache.ring_wrap/future:slots=4";
  named(probes("causal & window(4)", {}, ring, nothing), ring);
  const char* heads_first = "head.merge_transpose/inputs";
  named(probes("all", {}, heads_first, nothing), heads_first);
  const char* zero_keys = "cache.valid_length/zero_keys";
  named(probes("causal", {0, 1, 2, 3, 4, 5, 6, 7, 8}, zero_keys,
               [](Observation& o) { std::fill_n(o.k.begin() + 3 * 16, 16, 0.0); }),
        zero_keys);
  const char* cast = "mask.polarity_or_kind/bias_as_boolean";
  named(probes("all", {}, cast,
               [](Observation& o) {
                 for (int i = 0; i < 4 * 9 * 9; ++i) o.bias.push_back(i % 4 == 0 ? 0.0 : -0.25 * (i % 7 + 1));
               }),
        cast);
  const char* slopes = "alibi.bias/plain";
  named(probes("causal", {}, slopes,
               [](Observation& o) {
                 o.spec.rope = {};
                 o.spec.score.alibi_slopes = {0.25, 0.0625, 0.5, 0.125};
               }),
        slopes);
  const char* formula = "rope.yarn_magnitude/formula";
  named(probes("causal", {}, formula,
               [](Observation& o) {
                 o.spec.rope.rotary_dim = 4;  // of 8: over a whole head it is a scale of the scores
                 o.spec.rope.scaling.kind = RopeScalingKind::kYarn;
                 o.spec.rope.scaling.factor = 16;
                 o.spec.rope.scaling.original_context = 32;
               }),
        formula);
  // A ring fills in calls after the first, be they of one token; what it lost and what is empty is measured.
  const std::vector<std::int64_t> by_token{0, 2, 3, 4, 5, 6, 7, 8};
  for (const char* text : {"cache.ring_wrap/early:slots=5", "cache.ring_wrap/early:slots=6,empty=2",
                           "cache.ring_wrap/early:slots=7,empty=3"}) {
    const std::string mask = fmt::format("causal & window({})", parse_fault(text)->value("slots"));
    named(probes(mask.c_str(), by_token, text, nothing), text);
  }
  for (const char* text : {"mask.causal_dropped/blocks:block=3", "mask.causal_dropped/blocks:block=2,back=2",
                           "mask.causal_dropped/blocks:back=0"}) {
    named(probes("causal & window(4)", {}, text, nothing), text);
  }
  const char* by_row = "pack.cross_document/by_row";
  named(probes("causal & segment", {}, by_row,
               [](Observation& o) {
                 for (std::vector<TokenCoord>* coords : {&o.q_coords, &o.kv_coords}) {
                   for (TokenCoord& coord : *coords) {
                     if (coord.pos < 4) continue;
                     coord.pos -= 4;
                     coord.segment = 1;
                   }
                 }
               }),
        by_row);
  // Beside a sink a constant a row does not cancel: the frontier is wrong and ALiBi's distances are right.
  for (const char* text : {"mask.top_left_alignment/alibi_right", "mask.stale_or_misbound/previous_mask"}) {
    named(probes("causal", {0, 3, 6}, text,
                 [](Observation& o) {
                   o.spec.rope = {};
                   o.spec.score.alibi_slopes = {0.25, 0.0625, 0.5, 0.125};
                   o.spec.score.sink_logits = {1, 0, 2, -1};
                 }),
          text);
  }
}

// Rows of q, of k or of both in the order of other heads, on either way: 6 heads of 12 over 3 key heads.
// Where a width is twice or half the right one both ways are the same permutation.
TEST(DiagnoseTest, RowsInTheOrderOfOtherHeadsAreNamedWithTheirWidth) {
  AttentionSpec spec = usual_spec("causal");
  spec.heads = {6, 3, 12, 6};
  spec.rope.rotary_dim = 12;
  for (const char* text : {"rope.pairing/rows_read:width=18", "rope.pairing/rows_read:width=4",
                           "rope.pairing/query_rows_read:width=2", "rope.pairing/key_rows_read:width=36",
                           "rope.pairing/rows_written:width=18", "rope.pairing/query_rows_written:width=72",
                           "rope.pairing/key_rows_written:width=4"}) {
    for (const RopePairing pairing : {RopePairing::kHalfSplit, RopePairing::kInterleaved}) {
      spec.rope.pairing = pairing;
      const Fault fault = parse_fault(text).value();
      std::vector<Observation> seen;
      for (const std::uint64_t seed : {31U, 32U}) {
        seen.push_back(random_observation(spec, 9, {0, 4, 6}, 9, seed));
        observe(seen.back(), std::span(&fault, 1));
      }
      const Report report = diagnose(seen).value();
      ASSERT_EQ(report.faults.size(), 1U) << text << "\n" << to_text(report);
      EXPECT_EQ(full_name(report.faults[0]), text_of_name(text)) << to_text(report);
      EXPECT_EQ(report.faults[0].parameters[0].value, fault.values[0]) << to_text(report);
      EXPECT_TRUE(report.faults[0].certain) << to_text(report);
    }
  }
}

}  // namespace
}  // namespace sightline::checker
