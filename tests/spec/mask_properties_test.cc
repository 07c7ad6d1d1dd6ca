// The definition against an evaluator written another way, and what the analyses claim against brute force.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "sightline/base/rng.h"
#include "sightline/spec/mask.h"
#include "spec/random_spec.h"

namespace sightline {
namespace {

using testing::random_in;
using testing::random_mask;
using testing::random_sequence;
using testing::RandomTables;

// The rules once more, by counting and by sets instead of by arithmetic.
bool rule_sees(const MaskNode& leaf, const RandomTables& tables, const TokenRef& q, const TokenRef& k) {
  const auto steps_between = [](std::int64_t low, std::int64_t high) {
    std::int64_t n = 0;
    while (low + n < high) ++n;
    return n;
  };
  const bool same_document = !(q.coord.segment < k.coord.segment) && !(k.coord.segment < q.coord.segment);
  const auto chunk_of = [&](const TokenCoord& token) {
    std::int64_t chunk = 0;
    std::int64_t begin = token.segment_start;
    while (token.pos >= begin + leaf.n) begin += leaf.n, ++chunk;
    while (token.pos < begin) begin -= leaf.n, --chunk;
    return chunk;
  };
  switch (leaf.op) {
    case MaskOp::kAll:
      return true;
    case MaskOp::kNone:
      return false;
    case MaskOp::kCausal:
      return steps_between(q.coord.pos, k.coord.pos) == 0;
    case MaskOp::kWindow:
      return k.coord.pos > q.coord.pos || steps_between(k.coord.pos, q.coord.pos) <= leaf.n - 1;
    case MaskOp::kAhead:
      return k.coord.pos < q.coord.pos || steps_between(q.coord.pos, k.coord.pos) <= leaf.n;
    case MaskOp::kFirst:
      return steps_between(k.coord.segment_start, k.coord.pos) + 1 <= leaf.n;
    case MaskOp::kSegment:
      return same_document;
    case MaskOp::kChunk:
      return same_document && chunk_of(q.coord) == chunk_of(k.coord);
    case MaskOp::kSpan:
      return same_document && q.coord.span > 0 && k.coord.span > 0 && q.coord.span == k.coord.span;
    case MaskOp::kDilated: {
      std::int64_t rest =
          steps_between(std::min(q.coord.pos, k.coord.pos), std::max(q.coord.pos, k.coord.pos));
      while (rest >= leaf.n) rest -= leaf.n;
      return rest == 0;
    }
    case MaskOp::kTree: {
      std::set<std::int32_t> path;
      for (auto node = tables.q_node[static_cast<std::size_t>(q.row_idx)]; node != -1;
           node = tables.parent[static_cast<std::size_t>(node)]) {
        path.insert(node);
      }
      path.insert(-1);
      return path.contains(tables.kv_node[static_cast<std::size_t>(k.row_idx)]);
    }
    case MaskOp::kQueryIs:
      return (q.coord.flags / (1U << leaf.n)) % 2 == 1;
    case MaskOp::kKeyIs:
      return (k.coord.flags / (1U << leaf.n)) % 2 == 1;
    case MaskOp::kDense:
      return tables.dense[static_cast<std::size_t>(q.row_idx * tables.num_kv_rows + k.row_idx)] == 1;
    default:
      ADD_FAILURE() << "no rule";
      return false;
  }
}

// Reads the program from its end, as a tree. `at` is the node to read; moves before its first.
bool tree_sees(const MaskSpec& mask, std::size_t& at, const RandomTables& tables, const TokenRef& q,
               const TokenRef& k) {
  const MaskNode node = mask.nodes[at--];
  if (node.op == MaskOp::kNot) return !tree_sees(mask, at, tables, q, k);
  if (node.op == MaskOp::kAnd || node.op == MaskOp::kOr) {
    const bool right = tree_sees(mask, at, tables, q, k);
    const bool left = tree_sees(mask, at, tables, q, k);
    return node.op == MaskOp::kAnd ? std::min(left, right) : std::max(left, right);
  }
  return rule_sees(node, tables, q, k);
}

struct Sample {
  MaskSpec mask;
  std::vector<TokenCoord> tokens;
  RandomTables tables;
};

Sample random_sample(std::uint64_t seed, std::int64_t max_leaves) {
  Rng rng(seed);
  MaskSpec mask = random_mask(rng, random_in(rng, 1, max_leaves), testing::kAllOps);
  auto tokens = random_sequence(rng, 40);
  testing::disturb(rng, tokens);
  RandomTables tables(rng, 40, 40);
  return {std::move(mask), std::move(tokens), std::move(tables)};
}

template <typename F>
void for_each_pair(const Sample& sample, F f) {
  for (std::int64_t i = 0; i < std::ssize(sample.tokens); ++i) {
    for (std::int64_t j = 0; j < std::ssize(sample.tokens); ++j) {
      f(TokenRef{sample.tokens[static_cast<std::size_t>(i)], i},
        TokenRef{sample.tokens[static_cast<std::size_t>(j)], j});
    }
  }
}

TEST(MaskPropertiesTest, DefinitionEqualsAnEvaluatorWrittenAnotherWay) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const Sample sample = random_sample(seed, 8);
    int differences = 0;
    for_each_pair(sample, [&](const TokenRef& q, const TokenRef& k) {
      std::size_t at = sample.mask.nodes.size() - 1;
      const bool expected = q.coord.valid && k.coord.valid && tree_sees(sample.mask, at, sample.tables, q, k);
      differences += is_visible(sample.mask, sample.tables.view(), q, k) != expected;
    });
    ASSERT_EQ(differences, 0) << "seed " << seed << ": " << to_string(sample.mask);
  }
}

// Every claim of an analysis holds on every pair; and each claim is made often enough to be a test.
TEST(MaskPropertiesTest, AnalysesNeverClaimWhatAPairRefutes) {
  int causal = 0;
  int one_segment = 0;
  int bounded = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const Sample sample = random_sample(seed, 5);
    const bool claims_causal = is_causal(sample.mask);
    const bool claims_segment = implies_segment(sample.mask);
    const ReachBack reach = reach_back(sample.mask);
    causal += claims_causal;
    one_segment += claims_segment;
    bounded += reach.bounded;
    for_each_pair(sample, [&](const TokenRef& q, const TokenRef& k) {
      if (!is_visible(sample.mask, sample.tables.view(), q, k)) return;
      ASSERT_FALSE(claims_causal && k.coord.pos > q.coord.pos) << to_string(sample.mask);
      ASSERT_FALSE(claims_segment && k.coord.segment != q.coord.segment) << to_string(sample.mask);
      ASSERT_FALSE(reach.bounded && q.coord.pos - k.coord.pos >= reach.window &&
                   k.coord.pos - k.coord.segment_start >= reach.num_first)
          << to_string(sample.mask);
    });
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(causal, 400);
  EXPECT_GT(one_segment, 400);
  EXPECT_GT(bounded, 400);
}

TEST(MaskPropertiesTest, AnalysesProveWhatModelsUse) {
  struct Row {
    const char* mask;
    bool causal, segment;
    std::optional<std::pair<std::int64_t, std::int64_t>> reach;
  };
  using Reach = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [text, causal, segment, reach] : {
           Row{"causal", true, false, {}},
           Row{"causal & window(4)", true, false, Reach{4, 0}},
           Row{"causal & (window(3) | first(1))", true, false, Reach{3, 1}},
           Row{"causal & (first(4) | window(60)) & segment", true, true, Reach{60, 4}},
           Row{"(causal | span) & window(512) & ahead(511)", false, false, Reach{512, 0}},
           Row{"causal & chunk(8192)", true, true, Reach{8192, 0}},
           Row{"causal & segment | span", false, true, {}},
           Row{"ahead(0)", true, false, {}},
           Row{"ahead(1)", false, false, {}},
           Row{"!(!causal | !window(9))", true, false, Reach{9, 0}},
           Row{"!window(1)", true, false, {}},
           Row{"!causal", false, false, Reach{0, 0}},
           Row{"none", true, true, Reach{0, 0}},
           Row{"!all", true, true, Reach{0, 0}},
           Row{"causal & tree", true, false, {}},
           Row{"tree", false, false, {}},
           Row{"first(4)", false, false, Reach{0, 4}},
           Row{"causal & (key_is(0) | window(16))", true, false, {}},
       }) {
    const MaskSpec mask = *parse_mask(text);
    EXPECT_EQ(is_causal(mask), causal) << text;
    EXPECT_EQ(implies_segment(mask), segment) << text;
    const ReachBack found = reach_back(mask);
    EXPECT_EQ(found.bounded, reach.has_value()) << text;
    if (found.bounded && reach) {
      EXPECT_EQ(std::pair(found.window, found.num_first), *reach) << text;
    }
  }
}

std::vector<TokenCoord> shifted(std::vector<TokenCoord> tokens, std::int64_t delta, bool with_start) {
  for (auto& token : tokens) {
    token.pos += delta;
    if (with_start) token.segment_start += delta;
  }
  return tokens;
}

TEST(MaskPropertiesTest, ShiftingPositionsWithTheirSegmentStartChangesNoMask) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Sample sample = random_sample(seed, 6);
    const auto moved = shifted(sample.tokens, 1000003, true);
    ASSERT_EQ(draw(sample.mask, sample.tables.view(), sample.tokens, sample.tokens),
              draw(sample.mask, sample.tables.view(), moved, moved))
        << to_string(sample.mask);
  }
}

TEST(MaskPropertiesTest, ShiftingPositionsWithoutTheirSegmentStartChangesFirstAndChunkOnly) {
  const auto tokens = coords_range(0, 12);
  const auto moved = shifted(tokens, 5, false);
  for (const char* text : {"causal & first(3)", "chunk(4)"}) {
    const MaskSpec mask = *parse_mask(text);
    EXPECT_NE(draw(mask, {}, tokens, tokens), draw(mask, {}, moved, moved)) << text;
  }
  for (const char* text : {"causal", "window(3)", "ahead(2)", "segment", "span", "dilated(3)", "all"}) {
    const MaskSpec mask = *parse_mask(text);
    EXPECT_EQ(draw(mask, {}, tokens, tokens), draw(mask, {}, moved, moved)) << text;
  }
}

}  // namespace
}  // namespace sightline
