#include "sightline/checker/diagnose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "checker/observed.h"
#include "sightline/base/half.h"
#include "sightline/faults/catalogue.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {
namespace {

TEST(DiagnoseTest, TheDeclaredMeaningAgrees) {
  Observation o = random_observation(usual_spec("causal"), 20, {0, 5}, 12, 1);
  observe(o, {});
  const Report report = diagnose(o).value();
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
}

TEST(DiagnoseTest, RulesThatHideNothingAreToldBesideAnAgreement) {
  const std::pair<const char*, const char*> cases[] = {
      {"causal & segment", "segment hides nothing among these tokens"},
      {"causal & window(256)", "window(256) hides nothing among these tokens"},
      {"causal | span", "span: no token is in a span"},
  };
  for (const auto& [mask, line] : cases) {
    Observation o = random_observation(usual_spec(mask), 20, {}, 20, 1);
    observe(o, {});
    const Report report = diagnose(o).value();
    EXPECT_EQ(report.verdict, Verdict::kAgrees);
    EXPECT_EQ(report.blind_spots, std::vector<std::string>{line}) << to_text(report);
  }
  Observation o = random_observation(usual_spec("causal & window(5)"), 20, {}, 20, 1);
  observe(o, {});
  EXPECT_TRUE(diagnose(o).value().blind_spots.empty());
}

TEST(DiagnoseTest, EveryRowIsComparedBeforeAllAgree) {
  for (const std::int64_t row : {1, 37, 121}) {
    Observation o = random_observation(usual_spec("causal"), 150, {}, 150, 1);
    observe(o, {});
    ASSERT_EQ(diagnose(o).value().verdict, Verdict::kAgrees);
    o.out[static_cast<std::size_t>(row * 4 * 6 + 7)] += 0.01;
    const Report report = diagnose(o).value();
    EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
    ASSERT_TRUE(report.first_difference) << to_text(report);
    EXPECT_EQ(report.first_difference->index[0], row);
  }
}

TEST(DiagnoseTest, SingleFaultsAreNamedWithTheirParameters) {
  const char* cases[] = {
      "mask.top_left_alignment", "mask.causal_dropped",   "mask.window_off_by_one:keys=-2",
      "mask.window_scope",       "rope.pairing",          "rope.base:theta=500000",
      "head.gqa_mapping",        "score.scale/twice",     "score.scale/factor:factor=1.7",
      "mask.fill_value:fill=-5", "cache.position_offset", "cache.position_offset:offset=-3",
  };
  for (const char* text : cases) {
    Observation o = random_observation(usual_spec("causal & window(6)"), 20, {0, 5}, 12, 2);
    const Fault fault = parse_fault(text).value();
    observe(o, std::span(&fault, 1));
    const Report report = diagnose(o).value();
    ASSERT_EQ(report.verdict, Verdict::kFault) << text << "\n" << to_text(report);
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults[0].slug, fault.kind->slug) << to_text(report);
    for (std::size_t i = 0; i < fault.values.size() && report.faults[0].variant == fault.kind->variant; ++i) {
      EXPECT_NEAR(report.faults[0].parameters[i].value, fault.values[i], 1e-3 * std::abs(fault.values[i]))
          << text << "\n"
          << to_text(report);
    }
  }
}

// The given matrix is a rule like the others: it may be dropped, inverted or united with them.
TEST(DiagnoseTest, AMatrixThatWasGivenIsARuleOfTheMask) {
  AttentionSpec spec = usual_spec("causal & dense");
  Observation o = random_observation(spec, 9, {}, 9, 14);
  for (std::int64_t i = 0; i < 81; ++i) o.dense.push_back(i % 9 == 2 && i / 9 > 3 ? 0 : 1);
  observe(o, {});
  EXPECT_EQ(diagnose(o).value().verdict, Verdict::kAgrees);
  for (const char* text : {"mask.composition/rule_ignored:rule=2", "mask.polarity_or_kind/inverted"}) {
    const Fault fault = parse_fault(text).value();
    observe(o, std::span(&fault, 1));
    const Report report = diagnose(o).value();
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults[0].slug, fault.kind->slug) << to_text(report);
  }
  o.dense.pop_back();
  EXPECT_NE(diagnose(o).error().message.find("dense has 80 entries, expected 81"), std::string::npos)
      << diagnose(o).error().message;
}

// As one call nothing explains them; what the calls would explain is told, and the verdict stays.
TEST(DiagnoseTest, CallsThatWereNotToldAreAskedFor) {
  const Fault fault = parse_fault("mask.top_left_alignment").value();
  Observation o = random_observation(usual_spec("causal"), 20, {0, 5, 10, 15}, 20, 1);
  observe(o, std::span(&fault, 1));
  ASSERT_EQ(diagnose(o).value().verdict, Verdict::kFault);
  o.call_begins.clear();
  const Report report = diagnose(o, {.guesses_calls = true}).value();
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_TRUE(report.next_probe.starts_with("the first 5 of 20 queries agree")) << report.next_probe;
  EXPECT_NE(report.next_probe.find("mask.top_left_alignment"), std::string::npos) << report.next_probe;
  EXPECT_EQ(diagnose(o).value().next_probe, "");
  // Positions that begin again are a table that wraps, or those of calls.
  const Fault restart = parse_fault("cache.position_offset").value();
  o.call_begins = {0, 5, 10, 15};
  observe(o, std::span(&restart, 1));
  o.call_begins.clear();
  const Report other = diagnose(o, {.guesses_calls = true}).value();
  EXPECT_EQ(other.faults.front().slug, "rope.table_bounds") << to_text(other);
  EXPECT_NE(other.next_probe.find("cache.position_offset"), std::string::npos) << to_text(other);
}

TEST(DiagnoseTest, WhatIsNoNumberIsToldWithItsArrayAndFirstIndex) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Observation right = random_observation(usual_spec("causal"), 20, {}, 20, 1);
  observe(right, {});
  Observation o = right;
  std::ranges::fill(o.out, nan);
  const Report all = diagnose(o).value();
  EXPECT_EQ(all.verdict, Verdict::kBroken) << to_text(all);
  EXPECT_EQ(all.summary,
            "broken: out is NaN in all 480 numbers, from out[0, 0, 0] on, which no known fault explains");
  o = right;
  o.out[(7 * 4 + 1) * 6 + 3] = nan;
  const Report one = diagnose(o).value();
  EXPECT_EQ(one.verdict, Verdict::kBroken) << to_text(one);
  EXPECT_NE(one.summary.find("out is NaN in 1 of 480 numbers, from out[7, 1, 3] on"), std::string::npos)
      << one.summary;
  // Of such inputs every answer is NaN, which would agree.
  std::ranges::fill(o.v, nan);
  std::ranges::fill(o.out, nan);
  const Report input = diagnose(o).value();
  EXPECT_EQ(input.verdict, Verdict::kBroken) << to_text(input);
  EXPECT_NE(input.summary.find("v is NaN in all 240 numbers, from v[0, 0, 0] on"), std::string::npos)
      << input.summary;
}

TEST(DiagnoseTest, AStopEndsTheSearchBeforeTheNextSimulation) {
  const Fault fault = parse_fault("rope.base:theta=50000").value();
  Observation o = random_observation(usual_spec("causal"), 20, {}, 20, 1);
  observe(o, std::span(&fault, 1));
  int num_asked = 0;
  const auto report = diagnose(o, {.stop = [&] { return ++num_asked > 7; }});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().kind, ErrorKind::kTryLater);
  EXPECT_EQ(num_asked, 8);
}

// A scale of the width that rotates is one, or a head_dim that was derived: the frequencies are the same.
TEST(DiagnoseTest, AScaleThatAnotherHeadDimGivesToTheBitIsAmbiguous) {
  AttentionSpec spec = usual_spec("causal");
  spec.rope.rotary_dim = 4;  // of 8
  const Fault fault = parse_fault("head.dim_explicit:head_dim=4").value();
  std::vector<Observation> probes{random_observation(spec, 12, {}, 12, 61),
                                  random_observation(spec, 12, {}, 12, 62)};
  for (Observation& o : probes) observe(o, std::span(&fault, 1));
  const Report report = diagnose(probes).value();
  EXPECT_EQ(report.verdict, Verdict::kAmbiguous) << to_text(report);
  for (const char* slug : {"score.scale", "head.dim_explicit"}) {
    EXPECT_TRUE(std::ranges::count(report.faults, slug, &NamedFault::slug) == 1) << to_text(report);
  }
}

// A row that sees nothing and comes out as NaN takes the gradients of all keys with it.
TEST(DiagnoseTest, NanOfAnEmptyRowReachesEveryKeysGradient) {
  AttentionSpec spec = usual_spec("window(1) & ahead(0)");
  std::vector<Observation> probes;
  for (const std::uint64_t seed : {31U, 32U}) {
    Observation o = random_observation(spec, 5, {}, 5, seed);
    o.kv_coords[1].valid = false;
    o.d_out.assign(5 * 4 * 6, 1.0);
    observe(o, {});
    std::fill_n(o.out.begin() + 1 * 24, 24, std::nan(""));
    o.d_v.assign(5 * 2 * 6, std::nan(""));
    probes.push_back(std::move(o));
  }
  const Report report = diagnose(probes).value();
  ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
  EXPECT_EQ(report.faults[0].slug, "mask.fully_masked_row") << to_text(report);
}

TEST(DiagnoseTest, TwoProbesMakeANameCertainAndOneDoesNot) {
  const Fault fault = parse_fault("mask.top_left_alignment").value();
  std::vector<Observation> probes{random_observation(usual_spec("causal"), 20, {0, 5}, 12, 3),
                                  random_observation(usual_spec("causal"), 17, {0, 3, 4}, 9, 4)};
  for (Observation& o : probes) observe(o, std::span(&fault, 1));
  EXPECT_FALSE(diagnose(probes[0]).value().faults.at(0).certain);
  EXPECT_TRUE(diagnose(probes).value().faults.at(0).certain) << to_text(diagnose(probes).value());
}

TEST(DiagnoseTest, TwoFaultsAtOnceAreNamedTogether) {
  const std::vector<Fault> faults{parse_fault("rope.base:theta=500000").value(),
                                  parse_fault("mask.window_off_by_one:keys=1").value()};
  std::vector<Observation> probes{random_observation(usual_spec("causal & window(6)"), 20, {0, 5}, 12, 5),
                                  random_observation(usual_spec("causal & window(6)"), 22, {}, 22, 6)};
  for (Observation& o : probes) observe(o, faults);
  const Report report = diagnose(probes).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  ASSERT_EQ(report.faults.size(), 2U) << to_text(report);
  EXPECT_EQ(report.faults[0].slug, "mask.window_off_by_one");
  EXPECT_EQ(report.faults[1].slug, "rope.base");
  EXPECT_NEAR(report.faults[1].parameters[0].value, 500000, 500);
}

TEST(DiagnoseTest, AFaultOfNoCatalogueIsUnknownAndNeverAnotherName) {
  // Values of each four keys in reverse.
  std::vector<Observation> probes{random_observation(usual_spec("causal"), 20, {0, 5}, 12, 7),
                                  random_observation(usual_spec("causal"), 24, {}, 24, 8)};
  for (Observation& o : probes) {
    const std::vector<double> right = o.v;
    const std::size_t key = 2 * 6;
    for (std::size_t j = 0; j < o.kv_coords.size(); ++j) {
      const std::size_t from = j / 4 * 4 + 3 - j % 4;
      std::copy_n(right.begin() + static_cast<std::ptrdiff_t>(from * key), key,
                  o.v.begin() + static_cast<std::ptrdiff_t>(j * key));
    }
    observe(o, {});
    o.v = right;
  }
  const Report report = diagnose(probes).value();
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_TRUE(report.faults.empty());
  EXPECT_TRUE(report.first_difference.has_value());
}

TEST(DiagnoseTest, WhatOneInputCannotTellApartIsAmbiguous) {
  AttentionSpec spec = usual_spec("causal & window(6)");
  Observation o = random_observation(spec, 7, {}, 7, 9);
  const Fault fault = parse_fault("mask.window_scope").value();
  observe(o, std::span(&fault, 1));
  const Report report = diagnose(o).value();
  // One key beyond the window: "no window" and "one key too many" predict the same.
  EXPECT_EQ(report.verdict, Verdict::kAmbiguous) << to_text(report);
  ASSERT_EQ(report.faults.size(), 2U);
  EXPECT_EQ(exit_code(report.verdict), 1);
}

TEST(DiagnoseTest, TheNextProbeTellsApartWhatOneInputCannot) {
  struct Case {
    const char* mask;
    const char* faults[2];
    std::int64_t kv_len;
    const char* probe;
    std::int64_t next_kv_len, second_document;
  };
  const Case cases[] = {
      {"causal & window(6)",
       {"mask.window_scope", "mask.window_off_by_one"},
       7,
       "one call with more tokens than the mask's rules reach: 33 tokens; there they differ by ",
       33,
       33},
      {"causal & segment",
       {"mask.causal_dropped", "mask.composition/united"},
       12,
       "two documents in a row of tokens: 33 tokens, a second document from token 12; there they differ "
       "by ",
       33,
       12},
  };
  for (const Case& c : cases) {
    for (const char* text : c.faults) {
      const Fault fault = parse_fault(text).value();
      Observation o = random_observation(usual_spec(c.mask), c.kv_len, {}, c.kv_len, 9);
      observe(o, std::span(&fault, 1));
      const Report report = diagnose(o).value();
      ASSERT_EQ(report.verdict, Verdict::kAmbiguous) << text << "\n" << to_text(report);
      EXPECT_EQ(report.next_probe.rfind(c.probe, 0), 0U) << report.next_probe;

      Observation next = random_observation(usual_spec(c.mask), c.next_kv_len, {}, c.next_kv_len, 10);
      for (std::size_t i = static_cast<std::size_t>(c.second_document); i < next.kv_coords.size(); ++i) {
        next.kv_coords[i].segment = 1;
        next.kv_coords[i].segment_start = c.second_document;
      }
      next.q_coords = next.kv_coords;
      observe(next, std::span(&fault, 1));
      const Report answer = diagnose(next).value();
      ASSERT_EQ(answer.faults.size(), 1U) << to_text(answer);
      EXPECT_EQ(answer.faults[0].slug, fault.kind->slug);
      EXPECT_EQ(answer.next_probe, "");
    }
  }
}

TEST(DiagnoseTest, RowsThatAgreeBesideRowsThatDoNotAreCounted) {
  const Fault fault = parse_fault("rope.base:theta=500000").value();
  std::vector<Observation> rows;
  for (std::uint64_t row = 0; row < 3; ++row) {
    rows.push_back(random_observation(usual_spec("causal"), 16, {}, 16, 20 + row));
    observe(rows.back(), row == 0 ? std::span<const Fault>() : std::span(&fault, 1));
  }
  const Report report = diagnose(rows).value();
  EXPECT_EQ(report.verdict, Verdict::kUnknown);
  EXPECT_EQ(
      report.summary,
      "unknown: 1 of 3 observations agree with the declared meaning, and rope.base:theta=500000 explains "
      "the others alone: see rope.batch_row and batch.kernel_indexing");
  EXPECT_TRUE(report.faults.empty());
}

TEST(DiagnoseTest, RoundingOfTheTypeIsNoFault) {
  for (const ElementType type : {ElementType::kBf16, ElementType::kF16}) {
    Observation o = random_observation(usual_spec("causal"), 20, {}, 20, 10);
    o.type = type;
    observe(o, {});
    for (double& x : o.out) {
      const auto f = static_cast<float>(x);
      x = type == ElementType::kBf16 ? to_f32(to_bf16(f)) : to_f32(to_f16(f));
    }
    EXPECT_EQ(diagnose(o).value().verdict, Verdict::kRounding);
    // The same numbers said to be f32 are beyond its rounding.
    o.type = ElementType::kF32;
    EXPECT_NE(exit_code(diagnose(o).value().verdict), 0);
  }
}

TEST(DiagnoseTest, NanWhereANumberBelongsIsNeverRounding) {
  Observation o = random_observation(usual_spec("causal"), 12, {}, 12, 11);
  observe(o, {});
  o.out[5] = std::nan("");
  const Report report = diagnose(o).value();
  EXPECT_NE(exit_code(report.verdict), 0) << to_text(report);
}

TEST(DiagnoseTest, WhatDoesNotFitTogetherIsRefusedByName) {
  Observation o = random_observation(usual_spec("causal"), 12, {}, 12, 12);
  EXPECT_NE(diagnose(o).error().message.find("nothing was observed"), std::string::npos);
  o.out.assign(3, 0.0);
  EXPECT_NE(diagnose(o).error().message.find("out has 3 numbers, expected 288"), std::string::npos)
      << diagnose(o).error().message;
  observe(o, {});
  o.call_begins = {0, 5, 5};
  EXPECT_NE(diagnose(o).error().message.find("call_begins"), std::string::npos);
  o.call_begins = {};
  Observation other = o;
  other.spec.rope.theta = 7;
  EXPECT_NE(diagnose(std::vector<Observation>{o, other}).error().message.find("different specs"),
            std::string::npos);
  EXPECT_FALSE(diagnose(std::span<const Observation>()));
}

TEST(ReportTest, JsonHoldsTheVerdictTheFaultsAndWhereItDiffersFirst) {
  Observation o = random_observation(usual_spec("causal"), 20, {0, 5}, 12, 13);
  const Fault fault = parse_fault("rope.base:theta=500000").value();
  observe(o, std::span(&fault, 1));
  const Json json = to_json(diagnose(o).value());
  EXPECT_EQ(*json.find("schema")->as_int(), kReportSchema);
  EXPECT_EQ(*json.find("verdict")->as_string(), "fault");
  const Json& named = json.find("faults")->as_array()->at(0);
  EXPECT_EQ(*named.find("slug")->as_string(), "rope.base");
  double theta = 0;
  ASSERT_TRUE(named.find("parameters")->find("theta")->get_number(theta));
  EXPECT_NEAR(theta, 500000, 500);
  EXPECT_EQ(*json.find("first_difference")->find("tensor")->as_string(), "out");
  const CatalogueEntry& entry = *find_in_catalogue("rope.base");
  EXPECT_EQ(*named.find("idiom")->as_string(), entry.idiom);
  EXPECT_EQ(*named.find("fix")->as_string(), entry.fix);
  const std::string text = to_text(diagnose(o).value());
  EXPECT_EQ(text.rfind("fault: rope.base", 0), 0U) << text;
  EXPECT_NE(text.find(entry.idiom), std::string::npos) << text;
  EXPECT_NE(text.find(entry.fix), std::string::npos) << text;
}

}  // namespace
}  // namespace sightline::checker
