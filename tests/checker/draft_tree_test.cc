// A draft tree: what is done to its mask and positions is named, from arrays and from a subject that is
// driven.
#include <gtest/gtest.h>

#include "checker/observed.h"
#include "checker/plain_subject.h"
#include "sightline/checker/check.h"
#include "sightline/checker/diagnose.h"
#include "sightline/checker/named_fault.h"

namespace sightline::checker {
namespace {

// 12 committed tokens and a tree of 7 drafts, verified in one call.
Observation drafted(const char* mask, std::uint64_t seed) {
  Observation o = random_observation(usual_spec(mask), 19, {0, 4}, 11, seed);
  o.draft_parents = {-1, 0, 0, 1, 2, 2, 3};
  for (std::size_t node = 0; node < o.draft_parents.size(); ++node) {
    const std::int32_t parent = o.draft_parents[node];
    o.kv_coords[12 + node].pos = parent < 0 ? 12 : o.kv_coords[12 + static_cast<std::size_t>(parent)].pos + 1;
    o.q_coords[4 + node] = o.kv_coords[12 + node];
  }
  return o;
}

TEST(DraftTreeTest, ARightVerificationAgrees) {
  for (const char* mask : {"causal & tree", "tree"}) {
    Observation o = drafted(mask, 1);
    observe(o, {});
    const Report report = diagnose(o).value();
    EXPECT_EQ(report.verdict, Verdict::kAgrees) << to_text(report);
  }
}

TEST(DraftTreeTest, EachWayOfBeingWrongIsNamedAndCertainOnTwoProbes) {
  for (const FaultKind& kind : fault_table()) {
    if (kind.slug != "mask.tree_speculative") continue;
    const Fault fault{&kind, {}};
    std::vector<Observation> seen{drafted("tree", 2), drafted("tree", 3)};
    for (Observation& o : seen) observe(o, std::span(&fault, 1));
    const Report report = diagnose(seen).value();
    ASSERT_EQ(report.verdict, Verdict::kFault) << kind.variant << "\n" << to_text(report);
    ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
    EXPECT_EQ(report.faults[0].slug, kind.slug);
    EXPECT_EQ(report.faults[0].variant, kind.variant);
    EXPECT_TRUE(report.faults[0].certain) << kind.variant;
  }
}

TEST(DraftTreeTest, WhatDoesNotFitIsRefused) {
  const auto message = [](const Observation& o) {
    const Result<Report> report = diagnose(o);
    return report ? std::string() : report.error().message;
  };
  Observation o = drafted("tree", 1);
  o.out.assign(11 * 4 * 6, 0.0);
  o.draft_parents[3] = 3;
  EXPECT_EQ(message(o), "draft_parents[3] = 3, expected -1 to 2");
  o.draft_parents.assign(20, -1);
  EXPECT_EQ(message(o), "diagnose: the draft tree has 20 nodes, there are 19 keys");
  o = drafted("tree", 1);
  o.out.assign(11 * 4 * 6, 0.0);
  o.call_begins = {0, 6};
  EXPECT_EQ(message(o), "diagnose: a call begins at row 6, within the draft tree of the last 7 rows");
  o.spec.mask = parse_mask("causal").value();
  EXPECT_EQ(message(o), "diagnose: there is a draft tree, and no `tree` in the mask 'causal'");
}

// A subject that reads the tree for itself: `sees_draft(node, other)`.
class DraftingSubject : public PlainSubject {
 public:
  DraftingSubject() {
    given.takes_drafts = true;
    sees = [this](std::int64_t i, std::int64_t j, std::int64_t first_row) {
      const std::int64_t first = num_keys - static_cast<std::int64_t>(parents.size());
      if (i + first_row < first || j < first) return j <= i + first_row;
      return sees_draft(i + first_row - first, j - first);
    };
  }
  Result<void> answer(Observation& call) override {
    parents = call.draft_parents;
    num_keys = call.kv_len();
    num_queries = call.q_len();
    return PlainSubject::answer(call);
  }
  std::vector<std::int32_t> parents;
  std::int64_t num_keys = 0, num_queries = 0;
  std::function<bool(std::int64_t, std::int64_t)> sees_draft = [this](std::int64_t node, std::int64_t other) {
    for (; node > other; node = parents[static_cast<std::size_t>(node)]) {
    }
    return node == other;
  };
};

AttentionSpec drafting_spec() {
  AttentionSpec spec = causal_spec();
  spec.mask = parse_mask("causal & tree").value();
  return spec;
}

TEST(DraftTreeTest, ASubjectThatVerifiesRightlyAgrees) {
  DraftingSubject subject;
  const Report report = check(subject, drafting_spec(), {}).value();
  EXPECT_EQ(exit_code(report.verdict), 0) << to_text(report);
}

TEST(DraftTreeTest, DraftsThatSeeTheirSiblingsAreNamed) {
  DraftingSubject subject;
  subject.sees_draft = [](std::int64_t node, std::int64_t other) { return other <= node; };
  const Report report = check(subject, drafting_spec(), {}).value();
  ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
  EXPECT_EQ(full_name(report.faults[0]), "mask.tree_speculative/siblings") << to_text(report);
  EXPECT_TRUE(report.faults[0].certain);
}

TEST(DraftTreeTest, DraftsThatStandAtTheirRowsAreNamed) {
  DraftingSubject subject;
  subject.given.takes_positions = false;
  subject.position = [&](std::int64_t row, std::int64_t, bool is_query) {
    const std::int64_t first = is_query ? subject.num_keys - subject.num_queries : 0;
    return static_cast<double>(row + first);
  };
  const Report report = check(subject, drafting_spec(), {}).value();
  ASSERT_EQ(report.faults.size(), 1U) << to_text(report);
  EXPECT_EQ(full_name(report.faults[0]), "mask.tree_speculative/positions") << to_text(report);
}

TEST(DraftTreeTest, ASubjectThatIsToldNoTreeIsNotAskedForOne) {
  PlainSubject subject;
  const Result<Report> report = check(subject, drafting_spec(), {});
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().message.find("is not told one (drafts)"), std::string::npos);
}

}  // namespace
}  // namespace sightline::checker
