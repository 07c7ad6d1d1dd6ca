// check drives a subject, names what it does, and says broken or unknown where nothing can be named.
#include "sightline/checker/check.h"

#include <gtest/gtest.h>

#include <limits>

#include "checker/plain_subject.h"

namespace sightline::checker {
namespace {

Report checked(Subject& subject, const CheckOptions& options = {}) {
  return check(subject, causal_spec(), options).value();
}

TEST(CheckTest, ARightSubjectAgreesAndEveryRelationHolds) {
  PlainSubject subject;
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_FALSE(mentions(report, "FAILS")) << to_text(report);
  EXPECT_TRUE(mentions(report, "holds: whole = chunks"));
  EXPECT_TRUE(mentions(report, "holds: an edit of token"));
  EXPECT_TRUE(mentions(report, "holds: all rotary positions + 1000"));
  ASSERT_TRUE(report.visible_set.has_value());
  EXPECT_EQ(report.visible_set->num_different(), 0);
  EXPECT_EQ(report.visible_set->declared[1], 0);  // query 0, key 1
}

TEST(CheckTest, AsksAsManyCallsAsTheHeaderSays) {
  class Counting : public PlainSubject {
   public:
    Result<void> answer(Observation& call) override {
      (call.q_len() == call.kv_len() ? num_whole : num_parts) += 1;
      return PlainSubject::answer(call);
    }
    int num_whole = 0, num_parts = 0;
  };
  for (const std::int64_t num_tokens : {33, 79, 80}) {
    Counting subject;
    checked(subject, {.num_tokens = num_tokens});
    const auto num_chunked = static_cast<int>(1 + (num_tokens + 4) / 5);  // values are 5 wide
    EXPECT_LE(subject.num_parts, 25 * num_chunked) << num_tokens;
    EXPECT_LE(subject.num_whole, 9 + num_chunked) << "the first of each chunked one is whole";
  }
}

TEST(CheckTest, ATopLeftTriangleIsNamedForCertain) {
  PlainSubject subject;
  subject.sees = [](std::int64_t i, std::int64_t j, std::int64_t) { return j <= i; };
  const Report report = checked(subject);
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "mask.top_left_alignment");
  EXPECT_TRUE(report.faults.front().certain);
  EXPECT_TRUE(mentions(report, "FAILS: whole = chunks"));
  EXPECT_GT(report.visible_set->num_different(), 0);
}

TEST(CheckTest, APeekAtTheFutureFailsTheBlindEdit) {
  PlainSubject subject;
  subject.sees = [](std::int64_t i, std::int64_t j, std::int64_t first_row) {
    return j <= i + first_row + 1;
  };
  const Report report = checked(subject);
  EXPECT_EQ(exit_code(report.verdict), 1);
  EXPECT_TRUE(mentions(report, "FAILS: an edit of token")) << to_text(report);
}

TEST(CheckTest, PositionsThatStartAgainInEachCallAreNamed) {
  PlainSubject subject;
  subject.position = [](std::int64_t row, std::int64_t rope_pos, bool is_query) {
    return static_cast<double>(is_query ? row : rope_pos);
  };
  const Report report = checked(subject);
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "cache.position_offset");
  EXPECT_EQ(report.faults.front().variant, "queries");
  EXPECT_TRUE(mentions(report, "FAILS: whole = chunks"));
}

TEST(CheckTest, TwoFaultsOfWhichOneShowsInSomeProbesOnlyAreNamedTogether) {
  PlainSubject subject;  // it looks at no coordinates: padding is text, and documents are one
  subject.given = {.takes_positions = true, .takes_segments = true, .takes_padding = true};
  AttentionSpec spec = causal_spec();
  spec.rope = {};
  spec.mask = parse_mask("causal & segment").value();
  subject.position = [](std::int64_t, std::int64_t, bool) { return 0.0; };
  const Report report = check(subject, spec).value();
  ASSERT_EQ(report.faults.size(), 2U) << to_text(report);
  EXPECT_EQ(report.verdict, Verdict::kFault);
  EXPECT_EQ(report.faults[0].slug, "mask.padding_ignored");
  EXPECT_EQ(report.faults[1].slug, "pack.cross_document");
}

TEST(CheckTest, WhatIsInNoCatalogueIsUnknownWithTheMeasuredSet) {
  PlainSubject subject;  // keys of each page of four are read in reverse
  subject.sees = [](std::int64_t i, std::int64_t j, std::int64_t first_row) {
    return j / 4 * 4 + 3 - j % 4 <= i + first_row;
  };
  subject.given.takes_chunks = false;
  const Report report = checked(subject, {.num_tokens = 32});
  EXPECT_NE(report.verdict, Verdict::kAgrees);
  for (const NamedFault& fault : report.faults) EXPECT_FALSE(fault.certain) << to_text(report);
  EXPECT_TRUE(mentions(report, "row 0 sees keys 3, declared 0")) << to_text(report);
}

TEST(CheckTest, WhatNeverAnswersIsBroken) {
  PlainSubject subject;
  subject.after = [](Observation&) { return fail(ErrorKind::kIo, "it crashed (signal 11)"); };
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kBroken);
  EXPECT_TRUE(mentions(report, "signal 11"));
}

TEST(CheckTest, OtherShapesAreBroken) {
  PlainSubject subject;
  subject.after = [](Observation& call) {
    call.out.pop_back();
    return Result<void>{};
  };
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kBroken);
  EXPECT_TRUE(mentions(report, "out has 989 numbers, expected 990")) << to_text(report);
}

TEST(CheckTest, AnswersOfOnlySomeCallsAreBroken) {
  PlainSubject subject;
  int calls = 0;
  subject.after = [&](Observation& call) {
    if (++calls > 1 && calls % 2 == 0) call.lse.assign(static_cast<std::size_t>(call.q_len() * 6), 0.0);
    return Result<void>{};
  };
  EXPECT_EQ(checked(subject).verdict, Verdict::kBroken);
}

TEST(CheckTest, NaNThatNoFaultExplainsIsBroken) {
  PlainSubject subject;
  subject.after = [](Observation& call) {
    call.out[7] = std::numeric_limits<double>::quiet_NaN();
    return Result<void>{};
  };
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kBroken) << to_text(report);
  EXPECT_TRUE(mentions(report, "out is NaN in 1 of 990 numbers, from out[0, 1, 2] on")) << to_text(report);
}

TEST(CheckTest, OtherAnswersEachTimeAreBroken) {
  PlainSubject subject;
  double drift = 0;
  subject.after = [&](Observation& call) {
    for (double& x : call.out) x += drift;
    drift += 0.01;
    return Result<void>{};
  };
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kBroken) << to_text(report);
  EXPECT_TRUE(mentions(report, "it answered otherwise"));
}

TEST(CheckTest, ARelationThatFailsIsNoAgreement) {
  PlainSubject subject;  // wrong only at rotary positions that no probe has
  subject.position = [](std::int64_t, std::int64_t rope_pos, bool is_query) {
    return static_cast<double>(is_query && rope_pos > 1010 && rope_pos < 2000 ? rope_pos + 1 : rope_pos);
  };
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_TRUE(mentions(report, "a relation fails: all rotary positions + 1000")) << to_text(report);
}

TEST(CheckTest, WhatIsNotToldIsNotAskedAndSaid) {
  PlainSubject subject;
  subject.given = {.takes_chunks = false};
  std::int64_t fewest = 1000;
  subject.after = [&](Observation& call) {
    fewest = std::min(fewest, call.q_len());
    EXPECT_EQ(call.q_coords, coords_range(0, call.q_len()));
    return Result<void>{};
  };
  const Report report = checked(subject);
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_EQ(fewest, 33);
  EXPECT_TRUE(mentions(report, "not seen  the subject is not told positions"));
  EXPECT_TRUE(mentions(report, "not seen  the subject takes no fewer queries than keys"));
}

TEST(CheckTest, AnEmptyBudgetStillExplainsTheFirstAnswer) {
  PlainSubject subject;
  int calls = 0;
  subject.after = [&](Observation&) {
    ++calls;
    return Result<void>{};
  };
  const Report report =
      checked(subject, {.budget = std::chrono::milliseconds(1), .progress = [](int, int, std::string_view) {
                          const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
                          while (std::chrono::steady_clock::now() < until) {
                          }
                        }});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(report.verdict, Verdict::kAgrees);
  EXPECT_TRUE(mentions(report, "the time was over after 1 probes"));
}

TEST(CheckTest, RefusesWhatItCannotProbe) {
  PlainSubject subject;
  AttentionSpec spec = causal_spec();
  EXPECT_FALSE(check(subject, spec, {.num_tokens = 7}).has_value());
  EXPECT_FALSE(check(subject, spec, {.num_tokens = 4097}).has_value());
  spec.mask = mask_rule(MaskOp::kDense);
  EXPECT_FALSE(check(subject, spec).has_value());
}

}  // namespace
}  // namespace sightline::checker
