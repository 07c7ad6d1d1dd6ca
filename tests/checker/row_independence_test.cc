// Rows of a batch that take something from each other, and gradients that vary, are named by what a right row
// and a right repeat would be; a right batch raises no alarm.
#include <gtest/gtest.h>

#include "checker/faulted_calls.h"
#include "checker/plain_subject.h"
#include "checker/simulate.h"
#include "sightline/checker/check.h"

namespace sightline::checker {
namespace {

// Rows are answered one after another, each from what `reads` makes of all of them.
class BatchSubject : public PlainSubject {
 public:
  std::function<Observation(const std::vector<Observation>& rows, std::size_t r)> reads =
      [](const std::vector<Observation>& rows, std::size_t r) { return rows[r]; };

  BatchSubject() { given.takes_batch = true; }

  Result<void> answer_batch(std::span<Observation> rows) override {
    const std::vector<Observation> asked(rows.begin(), rows.end());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      Observation row = reads(asked, r);
      SIGHTLINE_CHECK(PlainSubject::answer(row));
      rows[r].out = row.out;
    }
    return {};
  }
};

Observation with_values_of_row_0(const std::vector<Observation>& rows, std::size_t r) {
  Observation row = rows[r];
  row.v = rows[0].v;
  return row;
}

TEST(RowIndependenceTest, ARightBatchAgreesBitByBit) {
  BatchSubject subject;
  const Report report = check(subject, causal_spec()).value();
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_TRUE(mentions(report, "holds: a row of a batch = the row alone")) << to_text(report);
}

TEST(RowIndependenceTest, ASubjectWithoutABatchIsNotAsked) {
  PlainSubject subject;
  const Report report = check(subject, causal_spec()).value();
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_FALSE(mentions(report, "a row of a batch"));
}

TEST(RowIndependenceTest, PositionsOfTheFirstRowForAllAreNamed) {
  for (const bool of_keys_too : {true, false}) {
    BatchSubject subject;
    subject.reads = [of_keys_too](const std::vector<Observation>& rows, std::size_t r) {
      Observation row = rows[r];
      row.q_coords = rows[0].q_coords;
      if (of_keys_too) row.kv_coords = rows[0].kv_coords;
      return row;
    };
    const Report report = check(subject, causal_spec()).value();
    ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults[0].slug, "rope.batch_row");
    EXPECT_TRUE(report.faults[0].certain);
    EXPECT_TRUE(mentions(
        report, of_keys_too ? "with the positions of row 0" : "with the positions of queries of row 0"))
        << to_text(report);
  }
}

TEST(RowIndependenceTest, KeysAndValuesOfTheNextRowAreNamed) {
  BatchSubject subject;
  subject.reads = [](const std::vector<Observation>& rows, std::size_t r) {
    Observation row = rows[r];
    row.k = rows[(r + 1) % rows.size()].k;
    row.v = rows[(r + 1) % rows.size()].v;
    return row;
  };
  const Report report = check(subject, causal_spec()).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  ASSERT_EQ(report.faults.size(), 1U);
  EXPECT_EQ(report.faults[0].slug, "batch.kernel_indexing");
  EXPECT_TRUE(report.faults[0].certain);
  EXPECT_EQ(report.faults[0].parameters[1].value, 1.0);  // row 0 takes from row 1
  EXPECT_TRUE(mentions(report, "row 0 of a batch is answered with the keys and values of row 1"))
      << to_text(report);
}

TEST(RowIndependenceTest, ValuesOfTheFirstRowForAllAreNamed) {
  BatchSubject subject;
  subject.reads = with_values_of_row_0;
  const Report report = check(subject, causal_spec()).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_TRUE(mentions(report, "row 1 of a batch is answered with the values of row 0")) << to_text(report);
}

TEST(RowIndependenceTest, RowsThatOnlyRoundOtherwiseAgreeAndItIsSaid) {
  BatchSubject subject;
  subject.reads = [](const std::vector<Observation>& rows, std::size_t r) {
    Observation row = rows[r];
    for (double& x : row.v) x *= 1 + 1e-7;
    return row;
  };
  const Report report = check(subject, causal_spec()).value();
  EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  EXPECT_TRUE(mentions(report, "not to the bit (batch.reduction_order)")) << to_text(report);
}

TEST(RowIndependenceTest, WhatNoMixtureExplainsIsUnknown) {
  BatchSubject subject;
  subject.reads = [](const std::vector<Observation>& rows, std::size_t r) {
    Observation row = rows[r];
    if (r == 2) {
      for (double& x : row.v) x *= 1.25;
    }
    return row;
  };
  const Report report = check(subject, causal_spec()).value();
  EXPECT_EQ(report.verdict, Verdict::kUnknown) << to_text(report);
  EXPECT_TRUE(mentions(report, "row 2 differs first")) << to_text(report);
}

TEST(CacheBytesTest, KeysOfEveryQueryHeadAreNamed) {
  PlainSubject subject;
  subject.given.cache_bytes_per_token = 2 * (8 + 5) * 4;
  EXPECT_EQ(check(subject, causal_spec()).value().verdict, Verdict::kAgrees);
  subject.given.cache_bytes_per_token *= 3;
  const Report report = check(subject, causal_spec()).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "cache.gqa_expansion");
  EXPECT_TRUE(report.faults.front().certain);
}

TEST(CacheBytesTest, ARightBatchBesideThemHidesNothing) {
  BatchSubject subject;
  subject.given.cache_bytes_per_token = 6 * (8 + 5) * 4;
  const Report report = check(subject, causal_spec()).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "cache.gqa_expansion");
}

TEST(CacheBytesTest, BesideRowsThatMixBothAreTrue) {
  BatchSubject subject;
  subject.given.cache_bytes_per_token = 6 * (8 + 5) * 4;
  subject.reads = with_values_of_row_0;
  const Report report = check(subject, causal_spec()).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  ASSERT_EQ(report.faults.size(), 2U) << to_text(report);
  EXPECT_EQ(report.faults[0].slug, "cache.gqa_expansion");
  EXPECT_EQ(report.faults[1].slug, "batch.kernel_indexing");
}

// Right answers and gradients, from the oracle.
class TrainedSubject : public Subject {
 public:
  double drift = 0;  // added to d_q after the first question
  bool gives_gradients_once = false;
  [[nodiscard]] SubjectTraits traits() const override { return {.takes_gradients = true}; }
  Result<void> answer(Observation& call) override {
    const auto zeros = [](const std::vector<double>& like) { return std::vector<double>(like.size()); };
    call.out.resize(
        static_cast<std::size_t>(call.q_len() * call.spec.heads.num_q_heads * call.spec.heads.v_head_dim));
    if (!call.d_out.empty()) {
      call.d_q = zeros(call.q);
      call.d_k = zeros(call.k);
      call.d_v = zeros(call.v);
    }
    SIGHTLINE_TRY(const Prediction right, Simulator(call, all_rows(call)).predict({}));
    call.out = right.out.values;
    if (call.d_out.empty()) return {};
    call.d_q = right.d_q.values;
    call.d_k = right.d_k.values;
    call.d_v = right.d_v.values;
    ++num_gradients_;
    if (gives_gradients_once && num_gradients_ > 1) call.d_q = call.d_k = call.d_v = {};
    if (num_gradients_ > 1) {
      for (double& x : call.d_q) x += drift;
    }
    return {};
  }

 private:
  int num_gradients_ = 0;
};

TEST(RowIndependenceTest, GradientsThatVaryAreNamed) {
  TrainedSubject right;
  EXPECT_EQ(check(right, causal_spec()).value().verdict, Verdict::kAgrees);
  TrainedSubject varying;
  varying.drift = 0.01;
  const Report report = check(varying, causal_spec()).value();
  ASSERT_EQ(report.verdict, Verdict::kFault) << to_text(report);
  EXPECT_EQ(report.faults.front().slug, "grad.nondeterminism");
}

TEST(RowIndependenceTest, GradientsThatAreGivenOnceAreBroken) {
  TrainedSubject subject;
  subject.gives_gradients_once = true;
  const Report report = check(subject, causal_spec()).value();
  EXPECT_EQ(report.verdict, Verdict::kBroken) << to_text(report);
  EXPECT_TRUE(mentions(report, "other gradients than the first time")) << to_text(report);
}

}  // namespace
}  // namespace sightline::checker
