// check_batch says which targets carry loss, which documents see each other and where positions stand.
#include "sightline/checker/batch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sightline::checker {
namespace {

constexpr std::int64_t kEos = 2;
constexpr std::int64_t kPad = 0;
constexpr std::int64_t kNone = -100;

// Two rows of two documents each, with padding at the right; ends of text are targets.
TrainingBatch packed() {
  TrainingBatch batch;
  batch.num_rows = 2;
  batch.num_tokens = 10;
  batch.input_ids = {5, 6, 7, kEos, 8, 9, kEos, kPad, kPad, kPad, 3, 4, kEos, 5, 6, 7, 8, kEos, kPad, kPad};
  batch.attention_mask = {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
  batch.position_ids = {0, 1, 2, 3, 0, 1, 2, 0, 0, 0, 0, 1, 2, 0, 1, 2, 3, 4, 0, 0};
  batch.labels = {5, 6, 7,    kEos,  kNone, 9, kEos, kNone, kNone, kNone,
                  3, 4, kEos, kNone, 6,     7, 8,    kEos,  kNone, kNone};
  batch.pad_id = kPad;
  batch.eos_id = kEos;
  return batch;
}

Report checked(const TrainingBatch& batch, const BatchDeclaration& declaration = {}) {
  return check_batch(batch, declaration).value();
}

double figure(const Report& report, std::string_view what) {
  for (const Evidence& e : report.evidence) {
    if (e.what == what) return e.value;
  }
  return -1;
}

// The slugs with their variants.
std::vector<std::string> names(const Report& report) {
  std::vector<std::string> out;
  for (const NamedFault& fault : report.faults) {
    out.push_back(fault.slug + (fault.variant.empty() ? "" : "/" + fault.variant));
  }
  return out;
}

using Names = std::vector<std::string>;

TEST(CheckBatchTest, ARightBatchAgreesAndIsCounted) {
  const Report report = checked(packed());
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_EQ(figure(report, "tokens that are no padding"), 15);
  EXPECT_EQ(figure(report, "documents"), 4);
  EXPECT_EQ(figure(report, "targets carry loss"), 11);
  EXPECT_EQ(figure(report, "targets were declared"), 11);
}

TEST(CheckBatchTest, PaddingByValueDropsGenuineEnds) {
  TrainingBatch batch = packed();
  std::ranges::replace(batch.input_ids, kPad, kEos);
  batch.pad_id = kEos;
  EXPECT_EQ(checked(batch).verdict, Verdict::kAgrees);
  std::ranges::replace(batch.labels, kEos, kNone);
  const Report report = checked(batch);
  EXPECT_EQ(names(report), Names{"loss.scope/by_value"}) << to_text(report);
  EXPECT_TRUE(report.faults[0].certain);
  ASSERT_TRUE(report.first_difference);
  EXPECT_EQ(report.first_difference->index, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(figure(report, "targets carry loss"), 7);
}

TEST(CheckBatchTest, PaddingEqualToTheEndIsFoundByItsRunWithoutAMask) {
  TrainingBatch batch = packed();
  std::ranges::replace(batch.input_ids, kPad, kEos);
  batch.pad_id = kEos;
  batch.attention_mask.clear();
  // The end of each second document is the first of the run.
  EXPECT_EQ(checked(batch).verdict, Verdict::kAgrees) << to_text(checked(batch));
}

TEST(CheckBatchTest, ScopesAreNamed) {
  TrainingBatch padding = packed();
  for (const std::size_t i : {7U, 8U, 9U, 18U, 19U}) padding.labels[i] = kPad;
  EXPECT_EQ(names(checked(padding)), Names{"loss.scope/padding"});

  TrainingBatch next = packed();
  next.labels[4] = 8;
  next.labels[13] = 5;
  EXPECT_EQ(names(checked(next)), Names{"loss.scope"});

  TrainingBatch prompt = packed();
  prompt.is_prompt = {1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0};
  BatchDeclaration without_prompt;
  without_prompt.loss.prompt = PromptScope::kOut;
  EXPECT_EQ(names(checked(prompt, without_prompt)), Names{"loss.scope/prompt"});
  prompt.labels[1] = kNone;
  prompt.labels[14] = kNone;
  EXPECT_EQ(checked(prompt, without_prompt).verdict, Verdict::kAgrees);
}

TEST(CheckBatchTest, ShiftsAreMeasured) {
  TrainingBatch twice = packed();
  for (std::size_t row = 0; row < 2; ++row) {
    const auto begin = twice.labels.begin() + static_cast<std::ptrdiff_t>(10 * row);
    std::rotate(begin, begin + 1, begin + 10);
    *(begin + 9) = kNone;
  }
  const Report report = checked(twice);
  EXPECT_EQ(names(report), Names{"loss.label_shift"}) << to_text(report);
  EXPECT_EQ(report.faults[0].parameters[0].value, 2);
  BatchDeclaration loader_shifts;
  loader_shifts.model_shifts = false;
  EXPECT_EQ(checked(twice, loader_shifts).verdict, Verdict::kAgrees);
  const Report none = checked(packed(), loader_shifts);
  EXPECT_EQ(names(none), Names{"loss.label_shift"}) << to_text(none);
  EXPECT_EQ(none.faults[0].parameters[0].value, 0);
}

TEST(CheckBatchTest, SeveralAtOnceAreNamedTogetherAndTheRestIsUnknown) {
  TrainingBatch batch = packed();
  batch.labels[4] = 8;
  batch.labels[13] = 5;
  for (const std::size_t i : {7U, 8U, 9U, 18U, 19U}) batch.labels[i] = kPad;
  EXPECT_EQ(names(checked(batch)), (Names{"loss.scope/padding", "loss.scope"}));
  batch.labels[5] = 77;
  const Report report = checked(batch);
  EXPECT_EQ(report.verdict, Verdict::kUnknown);
  EXPECT_TRUE(report.faults.empty());
}

TEST(CheckBatchTest, AnEndOfTextTokenIsolatesNothing) {
  TrainingBatch batch = packed();
  batch.position_ids.clear();
  EXPECT_EQ(names(checked(batch)), Names{"pack.cross_document"});
  BatchDeclaration one_text;
  one_text.mask = mask_rule(MaskOp::kCausal);
  batch.labels[4] = 8;
  batch.labels[13] = 5;
  EXPECT_EQ(checked(batch, one_text).verdict, Verdict::kAgrees) << to_text(checked(batch, one_text));
}

TEST(CheckBatchTest, PositionsAreHeldAgainstTheDeclaration) {
  TrainingBatch batch = packed();
  batch.segment_ids = {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0};
  EXPECT_EQ(checked(batch).verdict, Verdict::kAgrees);
  batch.position_ids = {0, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0, 0};
  EXPECT_EQ(names(checked(batch)), Names{"pack.position_reset"});
  BatchDeclaration runs_on;
  runs_on.positions_restart = false;
  EXPECT_EQ(checked(batch, runs_on).verdict, Verdict::kAgrees);

  TrainingBatch left;
  left.num_rows = 1;
  left.num_tokens = 5;
  left.input_ids = {kPad, kPad, 5, 6, kEos};
  left.attention_mask = {0, 0, 1, 1, 1};
  left.labels = {kNone, kNone, 5, 6, kEos};
  left.position_ids = {0, 0, 0, 1, 2};
  left.labels[2] = kNone;
  EXPECT_EQ(checked(left).verdict, Verdict::kAgrees) << to_text(checked(left));
  left.position_ids = {0, 1, 2, 3, 4};
  EXPECT_EQ(names(checked(left)), Names{"pos.left_padding"});
  EXPECT_FALSE(checked(left).faults[0].certain);  // one row
}

TEST(CheckBatchTest, PositionsThatNoFaultExplainsDoNotAgree) {
  TrainingBatch batch = packed();
  batch.segment_ids = {0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0};
  batch.position_ids[5] = 7;
  const Report report = checked(batch);
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_EQ(report.summary.find("unknown: the positions are not those declared"), 0U) << report.summary;
  ASSERT_TRUE(report.first_difference);
  EXPECT_EQ(report.first_difference->tensor, "position_ids");
  EXPECT_EQ(report.first_difference->index, (std::vector<std::int64_t>{0, 5}));
  EXPECT_EQ(report.first_difference->expected, 1);
  std::ranges::fill(batch.position_ids, 0);
  EXPECT_EQ(checked(batch).verdict, Verdict::kUnknown);
}

TEST(CheckBatchTest, PaddingInFrontOfDocumentsThatShouldRestartIsTwoFaults) {
  TrainingBatch batch;
  batch.num_rows = 1;
  batch.num_tokens = 6;
  batch.input_ids = {kPad, 5, kEos, 6, 7, kEos};
  batch.attention_mask = {0, 1, 1, 1, 1, 1};
  batch.segment_ids = {0, 0, 0, 1, 1, 1};
  batch.position_ids = {0, 1, 2, 0, 1, 2};
  EXPECT_EQ(names(checked(batch)), Names{"pos.left_padding"});
  batch.position_ids = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(names(checked(batch)), (Names{"pos.left_padding", "pack.position_reset"}));
}

TEST(CheckBatchTest, AMaskOfOnesOverPaddingIsNamed) {
  TrainingBatch batch = packed();
  std::ranges::fill(batch.attention_mask, 1);
  const auto found = names(checked(batch));
  EXPECT_NE(std::ranges::find(found, "mask.padding_ignored"), found.end());
}

TEST(CheckBatchTest, PairMasksAreExplained) {
  TrainingBatch batch = packed();
  const auto set = [&](auto sees) {
    batch.pair_mask.clear();
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::size_t i = 0; i < 10; ++i) {
        for (std::size_t j = 0; j < 10; ++j) batch.pair_mask.push_back(sees(r, i, j) ? 1 : 0);
      }
    }
  };
  const std::size_t second[] = {4, 3};
  const auto is_real = [&](std::size_t r, std::size_t j) { return batch.attention_mask[10 * r + j] != 0; };
  const auto same = [&](std::size_t r, std::size_t i, std::size_t j) {
    return (i >= second[r]) == (j >= second[r]);
  };
  set([&](std::size_t r, std::size_t i, std::size_t j) { return j <= i && same(r, i, j) && is_real(r, j); });
  EXPECT_EQ(checked(batch).verdict, Verdict::kAgrees) << to_text(checked(batch));
  set([&](std::size_t r, std::size_t i, std::size_t j) { return j <= i && is_real(r, j); });
  EXPECT_EQ(names(checked(batch)), Names{"pack.cross_document"});
  set([&](std::size_t r, std::size_t i, std::size_t j) { return same(r, i, j) && is_real(r, j); });
  EXPECT_EQ(names(checked(batch)), Names{"mask.causal_dropped"});
  set([&](std::size_t, std::size_t i, std::size_t j) { return (i + j) % 2 == 0; });
  const Report report = checked(batch);
  EXPECT_EQ(report.verdict, Verdict::kUnknown);
  EXPECT_EQ(report.summary.find("unknown: the pairs of the mask are not those declared"), 0U)
      << report.summary;
}

TEST(CheckBatchTest, RefusesArraysThatDoNotFit) {
  TrainingBatch batch = packed();
  batch.labels.pop_back();
  EXPECT_FALSE(check_batch(batch, {}));
  EXPECT_FALSE(check_batch({}, {}));
}

}  // namespace
}  // namespace sightline::checker
