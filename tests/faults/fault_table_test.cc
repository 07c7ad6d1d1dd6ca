#include "sightline/faults/fault_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "faults/fault_scene.h"

namespace sightline {
namespace {

using reference::max_difference;

Fault fault(std::string_view text) { return parse_fault(text).value(); }

TEST(FaultTableTest, EveryRowHasASlugAGroupAndOneLineAndReadsBack) {
  std::set<std::string> texts;
  for (const FaultKind& kind : fault_table()) {
    Fault f{&kind, {}};
    for (const FaultParameter& parameter : kind.parameters) {
      f.values.push_back(parameter.value);
      EXPECT_FALSE(parameter.what.empty()) << kind.slug;
    }
    const std::string text = to_string(f);
    EXPECT_TRUE(texts.insert(text).second) << text << " stands twice";
    EXPECT_EQ(fault(text).kind, &kind) << text;
    EXPECT_NE(kind.slug.find('.'), std::string_view::npos) << text;
    EXPECT_FALSE(kind.what.empty()) << text;
    EXPECT_EQ(kind.what.find('\n'), std::string_view::npos) << text;
    const int num_changes = (kind.on_spec != nullptr) + (kind.on_call != nullptr) +
                            (kind.on_trace != nullptr) + (kind.on_loss != nullptr) +
                            (kind.on_deviation != nullptr);
    EXPECT_GE(num_changes, 1) << text;
  }
  EXPECT_GE(texts.size(), 40U);
}

TEST(FaultTableTest, EveryRowShowsInTheOracle) {
  const FaultScene right;
  const std::vector<double> expected = right.observe(nullptr).value();
  EXPECT_EQ(max_difference(right.observe(nullptr).value(), expected), 0.0);
  for (const FaultKind& kind : fault_table()) {
    Fault f{&kind, {}};
    for (const FaultParameter& parameter : kind.parameters) f.values.push_back(parameter.value);
    if (kind.slug == "rope.table_bounds") f.values[0] = 4;  // the scene is shorter than the default table
    FaultScene scene;
    scene.prepare_for(kind);
    const auto wrong = scene.observe(&f);
    EXPECT_TRUE(wrong) << to_string(f) << ": " << wrong.error().message;
    if (!wrong) continue;
    std::vector<double> should_be = scene.observe(nullptr).value();
    should_be.resize(wrong->size());
    const double difference = max_difference(*wrong, should_be);
    EXPECT_FALSE(difference < 1e-4) << to_string(f);  // NaN shows too
  }
}

TEST(FaultTableTest, TextWithVariantAndParametersReadsBack) {
  const Fault f = fault("mask.window_off_by_one:keys=-1");
  EXPECT_EQ(f.value("keys"), -1);
  EXPECT_EQ(to_string(f), "mask.window_off_by_one:keys=-1");
  EXPECT_EQ(fault("cache.shift_rerotation").kind->variant, "rotated_twice");
  EXPECT_EQ(to_string(fault("cache.shift_rerotation/not_rerotated")), "cache.shift_rerotation/not_rerotated");
}

TEST(FaultTableTest, UnknownNamesAndNumbersAreRefusedWithTheKnownOnes) {
  const auto message = [](std::string_view text) {
    const Result<Fault> fault = parse_fault(text);
    return fault ? std::string() : fault.error().message;
  };
  EXPECT_EQ(message("mask.nothing").find("fault 'mask.nothing' is unknown; known: mask.top_left_alignment, "),
            0U);
  EXPECT_EQ(message("score.scale/half"),
            "fault score.scale has no variant 'half'; it has: twice, missing, inverted, factor, on_bias");
  EXPECT_EQ(message("rope.base:base=1"),
            "fault rope.base: 'base=1', expected NAME=NUMBER with NAME of: theta");
  EXPECT_EQ(message("rope.base:theta=x"), "fault rope.base: theta = 'x', expected a finite number");
  EXPECT_EQ(message("rope.base:theta=inf"), "fault rope.base: theta = 'inf', expected a finite number");
  EXPECT_EQ(
      message("mask.window_off_by_one:keys=0.5"),
      "fault mask.window_off_by_one: keys = '0.5', expected a whole number from -2147483647 to 2147483647");
  for (const char* text : {"mask.window_off_by_one:keys=1e300", "cache.position_offset:offset=9e18",
                           "rope.table_bounds:rows=-1e19", "loss.label_shift:shift=1e10"}) {
    EXPECT_NE(message(text).find("expected a whole number"), std::string::npos) << text;
  }
  EXPECT_EQ(message("rope.pairing:"), "fault rope.pairing: '', expected NAME=NUMBER with NAME of: (none)");
  for (const char* text : {"", "/", ":", "rope.base:", "rope.base:theta", "rope.base:theta=1,", "a/b:c=d"}) {
    EXPECT_FALSE(parse_fault(text)) << text;
  }
}

TEST(FaultTableTest, AFaultThatCannotShowIsRefusedAndLeavesTheSpecAlone) {
  AttentionSpec spec = reference::small_spec("causal", {4, 4, 6, 5});
  const AttentionSpec before = spec;
  for (const char* text : {"mask.window_off_by_one", "pack.cross_document", "rope.base", "score.softcap",
                           "score.sink", "alibi.bias", "rope.yarn_magnitude"}) {
    const Result<void> done = plant(fault(text), spec);
    ASSERT_FALSE(done) << text;
    EXPECT_EQ(done.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_NE(done.error().message.find(text), std::string::npos) << done.error().message;
    EXPECT_EQ(spec, before);
  }
  reference::Deviation deviation;
  EXPECT_FALSE(plant(fault("head.gqa_mapping"), spec, deviation));
  EXPECT_FALSE(plant(fault("grad.gqa_reduction"), spec, deviation));
  EXPECT_EQ(deviation, reference::Deviation{});
  Trace trace;
  EXPECT_FALSE(plant(fault("cache.rollback"), trace));
}

TEST(FaultTableTest, SpecFaultsChangeTheOneThingTheyName) {
  const AttentionSpec right = [] {
    AttentionSpec spec = reference::small_spec("(causal | span) & window(3) & segment");
    spec.rope = reference::small_rope();
    spec.score.softmax_scale = 0.5;
    return spec;
  }();
  const auto with = [&](std::string_view text) {
    AttentionSpec spec = right;
    EXPECT_TRUE(plant(fault(text), spec)) << text;
    return spec;
  };
  EXPECT_EQ(to_string(with("mask.causal_dropped").mask), "(all | span) & window(3) & segment");
  EXPECT_EQ(to_string(with("mask.window_off_by_one").mask), "(causal | span) & window(4) & segment");
  EXPECT_EQ(to_string(with("mask.window_off_by_one:keys=-1").mask), "(causal | span) & window(2) & segment");
  EXPECT_EQ(to_string(with("mask.window_scope").mask), "(causal | span) & all & segment");
  EXPECT_EQ(to_string(with("pack.cross_document").mask), "(causal | span) & window(3) & all");
  EXPECT_EQ(to_string(with("mask.prefix_bidirectional").mask), "(causal | none) & window(3) & segment");
  EXPECT_EQ(with("rope.pairing").rope.pairing, RopePairing::kHalfSplit);
  EXPECT_EQ(with("rope.base").rope.theta, 10000);
  EXPECT_EQ(with("rope.base:theta=500").rope.theta, 500);
  EXPECT_EQ(with("rope.partial_dim").rope.rotary_dim, 6);
  EXPECT_EQ(with("score.scale").score.softmax_scale, 0.25);
  EXPECT_EQ(with("score.scale/missing").score.softmax_scale, 1.0);
  AttentionSpec spec = right;
  EXPECT_FALSE(plant(fault("mask.window_off_by_one:keys=-3"), spec)) << "a window of 0 is no spec";
  EXPECT_EQ(spec, right);
}

TEST(FaultTableTest, RulesOfAMaskAreIgnoredUnitedAndReplaced) {
  const auto mask_with = [](const char* mask, std::string_view text) {
    AttentionSpec spec = reference::small_spec(mask);
    const Result<void> done = plant(fault(text), spec);
    return done ? to_string(spec.mask) : "refused";
  };
  const char* ignored[][3] = {
      {"causal & chunk(3)", "2", "causal & all"},
      {"causal & chunk(3)", "1", "refused"},  // mask.causal_dropped
      {"causal & chunk(3)", "3", "refused"},  // there is none
      {"causal & (window(4) | first(2))", "3", "causal & (window(4) | none)"},
      {"causal & (first(2) | window(4))", "2", "causal & (none | window(4))"},
      {"chunk(3) & (causal | first(2)) & segment", "1", "all & (causal | first(2)) & segment"},
      {"first(2) | causal & segment", "1", "none | causal & segment"},
      {"causal & !chunk(3)", "2", "refused"},
      {"chunk(3)", "1", "refused"},
  };
  for (const auto& [mask, rule, expected] : ignored) {
    EXPECT_EQ(mask_with(mask, std::string("mask.composition/rule_ignored:rule=") + rule), expected) << mask;
  }
  EXPECT_EQ(mask_with("causal & segment", "mask.composition/united"), "causal | segment");
  EXPECT_EQ(mask_with("causal | span", "mask.composition/united"), "refused");
  EXPECT_EQ(mask_with("window(3)", "mask.composition/forced_causal"), "window(3) & causal");
  EXPECT_EQ(mask_with("window(3) & ahead(0)", "mask.composition/forced_causal"), "refused");
  EXPECT_EQ(mask_with("causal & chunk(3)", "mask.chunked_local/window"), "causal & (segment & window(3))");
}

TEST(FaultTableTest, AnotherHeadDimIsItsScaleAndItsBaseTogether) {
  AttentionSpec spec = reference::small_spec();
  spec.rope = reference::small_rope();  // 4 of 6 dimensions, base 100
  const AttentionSpec before = spec;
  ASSERT_TRUE(plant(fault("head.dim_explicit:head_dim=8"), spec));
  EXPECT_DOUBLE_EQ(*spec.score.softmax_scale, 1 / std::sqrt(8.0));
  const std::vector<double> frequencies = rope_frequencies(spec.rope, 0);
  EXPECT_DOUBLE_EQ(frequencies[1], std::pow(100.0, -2.0 / 8));
  spec = before;  // of the width that rotates it is a scale alone
  ASSERT_TRUE(plant(fault("head.dim_explicit:head_dim=4"), spec));
  EXPECT_EQ(spec.rope, before.rope);
  EXPECT_DOUBLE_EQ(*spec.score.softmax_scale, 0.5);
  for (const char* text : {"6", "0"}) {  // the right one, none
    spec = before;
    EXPECT_FALSE(plant(fault(std::string("head.dim_explicit:head_dim=") + text), spec)) << text;
  }
}

TEST(FaultTableTest, LayersTakeItWhereItAppliesAndOneIsEnough) {
  std::vector<AttentionSpec> layers = {reference::small_spec("causal & window(4)"),
                                       reference::small_spec("causal")};
  ASSERT_TRUE(plant(fault("mask.window_scope"), layers));
  EXPECT_EQ(to_string(layers[0].mask), "causal & all");
  EXPECT_EQ(to_string(layers[1].mask), "causal");
  EXPECT_FALSE(plant(fault("mask.window_scope"), layers));
}

TEST(FaultTableTest, OnlySpecsAndCallsRunInAnEngine) {
  for (const char* text : {"mask.top_left_alignment", "cache.position_offset", "cache.shift_rerotation",
                           "rope.pairing", "rope.base", "mask.window_off_by_one", "score.scale"}) {
    EXPECT_TRUE(runs_in_engine(*fault(text).kind)) << text;
  }
  for (const char* text : {"head.gqa_mapping", "grad.delta_term", "loss.label_shift",
                           "rope.cached_keys_rescaled", "cache.rollback"}) {
    EXPECT_FALSE(runs_in_engine(*fault(text).kind)) << text;
  }
}

TEST(CallFaultTest, TopLeftAlignmentDrawsALowerTriangleOverTheFirstKeys) {
  CallCoords call = call_coords(3, coords_range(3, 5));
  const MaskSpec causal = mask_rule(MaskOp::kCausal);
  EXPECT_EQ(draw(causal, {}, call.q_coords, coords_range(0, 5)), "1 1 1 1 0\n1 1 1 1 1\n");
  ASSERT_TRUE(plant(fault("mask.top_left_alignment"), call));
  EXPECT_EQ(draw(causal, {}, call.q_coords, coords_range(0, 5)), "1 0 0 0 0\n1 1 0 0 0\n");
  EXPECT_EQ(call.q_rope_pos, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(call.kv_coords, coords_range(3, 5));
}

TEST(CallFaultTest, QueriesAreMaskedAsTheCallBeforeAndKeysRotatedBySlot) {
  CallCoords call = call_coords(4, coords_range(4, 6));
  ASSERT_TRUE(plant(fault("mask.stale_or_misbound/previous_call"), call));
  EXPECT_EQ(call.q_coords, coords_range(2, 4));
  EXPECT_EQ(call.q_rope_pos, (std::vector<std::int64_t>{4, 5}));
  call = call_coords(4, coords_range(4, 6));
  ASSERT_TRUE(plant(fault("cache.ring_wrap/keys:slots=5"), call));
  EXPECT_EQ(call.kv_rope_pos, (std::vector<std::int64_t>{4, 0}));
  EXPECT_EQ(call.q_rope_pos, (std::vector<std::int64_t>{4, 5}));
  ASSERT_TRUE(plant(fault("cache.ring_wrap/rotation:slots=3"), call));
  EXPECT_EQ(call.q_rope_pos, (std::vector<std::int64_t>{1, 2}));
  EXPECT_FALSE(plant(fault("cache.ring_wrap/keys:slots=0"), call));
}

TEST(CallFaultTest, TopLeftAlignmentChangesNothingInTheFirstCall) {
  const CallCoords right = call_coords(0, coords_range(0, 4));
  CallCoords call = right;
  ASSERT_TRUE(plant(fault("mask.top_left_alignment"), call));
  EXPECT_EQ(call, right);
}

TEST(CallFaultTest, RotaryPositionsRestartInEachChunkOrStandOffByAConstant) {
  CallCoords call = call_coords(3, coords_range(3, 5));
  ASSERT_TRUE(plant(fault("cache.position_offset"), call));
  EXPECT_EQ(call.q_rope_pos, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(call.kv_rope_pos, call.q_rope_pos);
  EXPECT_EQ(call.q_coords, coords_range(3, 5));
  call = call_coords(3, coords_range(3, 5));
  ASSERT_TRUE(plant(fault("cache.position_offset:offset=7"), call));
  EXPECT_EQ(call.kv_rope_pos, (std::vector<std::int64_t>{10, 11}));
  call = call_coords(0, coords_range(0, 2));
  ASSERT_TRUE(plant(fault("cache.position_offset:offset=7"), call));
  EXPECT_EQ(call.kv_rope_pos, (std::vector<std::int64_t>{0, 1}));
}

TEST(CallFaultTest, KeysRotatedTwiceAreKeysAtTwiceTheirPosition) {
  CallCoords call = call_coords(3, coords_range(3, 5));
  ASSERT_TRUE(plant(fault("cache.shift_rerotation"), call));
  EXPECT_EQ(call.kv_rope_pos, (std::vector<std::int64_t>{6, 8}));
  EXPECT_EQ(call.q_rope_pos, (std::vector<std::int64_t>{3, 4}));

  const RopeSpec rope = reference::small_rope();
  const std::vector<double> frequencies = rope_frequencies(rope, 0);
  std::vector<double> twice = {1, 2, 3, 4, 5, 6}, doubled = twice;
  reference::rotate(rope, frequencies, 4, twice);
  reference::rotate(rope, frequencies, 4, twice);
  reference::rotate(rope, frequencies, 8, doubled);
  EXPECT_LT(max_difference(twice, doubled), 1e-14);
}

TEST(CallFaultTest, PaddingJoinsInFrontAtTheFirstTokenAndBehindAfterTheLast) {
  std::vector<TokenCoord> coords = coords_range(5, 9);
  coords[0] = {.pos = 99, .valid = false};
  coords[3] = {.pos = 99, .valid = false};
  CallCoords call = call_coords(0, coords);
  ASSERT_TRUE(plant(fault("mask.padding_ignored"), call));
  std::vector<std::int64_t> positions;
  for (const TokenCoord& coord : call.kv_coords) {
    EXPECT_TRUE(coord.valid);
    positions.push_back(coord.pos);
  }
  EXPECT_EQ(positions, (std::vector<std::int64_t>{6, 6, 7, 8}));
  EXPECT_EQ(call.kv_rope_pos, positions);
  EXPECT_FALSE(call.q_coords[0].valid);
}

TEST(CallFaultTest, PaddingTakenForTextStandsAtItsRowAsQueryAndKey) {
  std::vector<TokenCoord> coords = coords_range(0, 4);
  coords[0] = {.pos = 99, .valid = false};
  coords[3] = {.pos = 99, .segment = 7, .valid = false};
  CallCoords call = call_coords(0, coords);
  ASSERT_TRUE(plant(fault("mask.padding_ignored/as_text"), call));
  EXPECT_EQ(call.q_coords, coords_range(0, 4));
  EXPECT_EQ(call.kv_coords, coords_range(0, 4));
  EXPECT_EQ(call.kv_rope_pos, (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(CallFaultTest, LeftPaddingIsCountedInTheFirstCallOnly) {
  std::vector<TokenCoord> coords = {{.valid = false}, {.valid = false}, {.pos = 0}, {.pos = 1}};
  CallCoords call = call_coords(0, coords);
  ASSERT_TRUE(plant(fault("pos.left_padding"), call));
  EXPECT_EQ(call.q_rope_pos[2], 2);
  EXPECT_EQ(call.kv_rope_pos[3], 3);
  call = call_coords(4, coords);
  ASSERT_TRUE(plant(fault("pos.left_padding"), call));
  EXPECT_EQ(call.q_rope_pos[2], 0);
}

}  // namespace
}  // namespace sightline
