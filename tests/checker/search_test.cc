// What bounds the search for two faults at once: a right forward, and the cost of a look.
#include "checker/search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checker/faulted_calls.h"
#include "checker/observed.h"
#include "sightline/checker/diagnose.h"

namespace sightline::checker {
namespace {

// One call with gradients of all of its inputs, right but for what is done to it.
Observation with_gradients(std::int64_t num_tokens, std::uint64_t seed, std::span<const Fault> faults = {}) {
  Observation o = random_observation(usual_spec("causal & window(6)"), num_tokens, {}, num_tokens, seed);
  Rng rng(seed + 100);
  o.d_out.resize(static_cast<std::size_t>(num_tokens * 4 * 6));
  for (double& x : o.d_out) x = static_cast<float>(rng.next_normal());
  o.out = o.d_q = o.d_k = o.d_v = {0.0};
  const Prediction prediction = *Simulator(o, all_rows(o)).predict(faults);
  const auto answer = [](const PredictedArray& from, std::vector<double>& to) {
    to = from.values;
    for (double& x : to) x = static_cast<float>(x);
  };
  answer(prediction.out, o.out);
  answer(prediction.d_q, o.d_q);
  answer(prediction.d_k, o.d_k);
  answer(prediction.d_v, o.d_v);
  return o;
}

bool keeps(const Searcher& searcher, std::string_view text) {
  const Fault fault = parse_fault(text).value();
  return searcher.keeps_forward(std::span(&fault, 1));
}

TEST(SearchTest, BesideARightForwardOnlyFaultsThatKeepItRightAreLeft) {
  Observation o = with_gradients(14, 1);
  for (double& x : o.d_k) x = -x;
  const Searcher searcher(std::span(&o, 1));
  EXPECT_TRUE(searcher.is_forward_right());
  for (const char* text : {"grad.delta_term", "grad.gqa_reduction/mean", "grad.mask_mismatch"}) {
    EXPECT_TRUE(keeps(searcher, text)) << text;
  }
  for (const char* text : {"rope.base:theta=500", "mask.causal_dropped", "score.scale/twice"}) {
    EXPECT_FALSE(keeps(searcher, text)) << text;
  }
}

TEST(SearchTest, AWrongOrUnseenForwardLeavesThemAll) {
  Observation wrong = with_gradients(14, 2);
  wrong.out[5] += 1;
  EXPECT_FALSE(Searcher(std::span(&wrong, 1)).is_forward_right());
  Observation unseen = with_gradients(14, 2);
  unseen.out.clear();
  EXPECT_FALSE(Searcher(std::span(&unseen, 1)).is_forward_right());
}

TEST(SearchTest, ALookAtGradientsAloneCostsTheSquareOfTheTokens) {
  const auto cost = [](std::int64_t num_tokens, bool has_forward) {
    Observation o = with_gradients(num_tokens, 3);
    for (double& x : o.d_k) x = -x;
    if (!has_forward) o.out.clear();
    return Searcher(std::span(&o, 1)).cost_of_look();
  };
  EXPECT_EQ(cost(32, false), 4 * cost(16, false));
  EXPECT_LE(cost(32, true), 3 * cost(16, true));
}

TEST(SearchTest, TwoFaultsOfTheBackwardAreStillNamedTogether) {
  const Fault faults[] = {parse_fault("grad.delta_term").value(),
                          parse_fault("grad.gqa_reduction/mean").value()};
  const std::vector<Observation> seen{with_gradients(14, 4, faults), with_gradients(14, 5, faults)};
  const Report report = diagnose(seen).value();
  ASSERT_EQ(report.faults.size(), 2U) << to_text(report);
  EXPECT_EQ(report.faults[0].slug, "grad.delta_term");
  EXPECT_EQ(report.faults[1].slug, "grad.gqa_reduction");
}

}  // namespace
}  // namespace sightline::checker
