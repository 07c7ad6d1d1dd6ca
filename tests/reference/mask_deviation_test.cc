// Deviations of what a query sees, held against rows of visible keys that are written out.
#include <gtest/gtest.h>

#include <string>

#include "reference/random_call.h"
#include "sightline/reference/deviation.h"

namespace sightline::reference {
namespace {

using Rows = std::vector<std::string>;

// One text of 0 and 1 a query.
Rows seen(const RandomCall& call, const Deviation& deviation) {
  const std::vector<double> weights = call.forward({.weights = true}, deviation).weights;
  Rows rows(static_cast<std::size_t>(call.q_len()));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    rows[i / call.kv_coords.size()] += weights[i] != 0 ? '1' : '0';
  }
  return rows;
}

RandomCall one_head(const char* mask, std::int64_t num_tokens) {
  return {small_spec(mask, {1, 1, 2, 2}), 0, num_tokens, 1};
}

TEST(MaskDeviationTest, AQuerySeesItsWholeBlockAndAsManyBlocksBeforeItAsAreSaid) {
  RandomCall call = one_head("all", 5);
  EXPECT_EQ(seen(call, {.block_size = 2, .num_blocks_back = 1}),
            (Rows{"11000", "11000", "11110", "11110", "00111"}));
  EXPECT_EQ(seen(call, {.block_size = 2, .num_blocks_back = 0}),
            (Rows{"11000", "11000", "00110", "00110", "00001"}));
  // Position -1 is in the block before that of 0.
  for (TokenCoord& coord : call.kv_coords) --coord.pos;
  call.q_coords = call.kv_coords;
  EXPECT_EQ(seen(call, {.block_size = 2, .num_blocks_back = 0}),
            (Rows{"10000", "01100", "01100", "00011", "00011"}));
  // What the mask hides stays hidden.
  call.spec.mask = parse_mask("causal").value();
  EXPECT_EQ(seen(call, {.block_size = 2, .num_blocks_back = 0}),
            (Rows{"10000", "01000", "01100", "00010", "00011"}));
}

TEST(MaskDeviationTest, DraftsInARowSeeSiblingsAndAncestorsAloneHideWhatIsCommitted) {
  for (const char* mask : {"causal & tree", "tree & causal & window(9)"}) {
    RandomCall call = one_head(mask, 6);
    const std::vector<std::int32_t> nodes{-1, -1, 0, 1, 2, 3}, parents{-1, 0, 1, 0};
    call.tables.q_node = call.tables.kv_node = nodes;
    call.tables.parent = parents;
    const std::int64_t depths[] = {2, 3, 4, 3};
    for (std::size_t node = 0; node < 4; ++node) call.kv_coords[2 + node].pos = depths[node];
    call.q_coords = call.kv_coords;
    EXPECT_EQ(seen(call, {}), (Rows{"100000", "110000", "111000", "111100", "111110", "111001"})) << mask;
    EXPECT_EQ(seen(call, {.draft_tree = DraftTree::kRows}),
              (Rows{"100000", "110000", "111000", "111100", "111110", "111111"}))
        << mask;
    EXPECT_EQ(seen(call, {.draft_tree = DraftTree::kAncestorsAlone}),
              (Rows{"100000", "110000", "001000", "001100", "001110", "001001"}))
        << mask;
  }
}

TEST(MaskDeviationTest, RowsTakenForPositionsPutDocumentsOneBehindTheOther) {
  RandomCall call = one_head("causal", 5);
  for (std::size_t i = 3; i < 5; ++i) {
    TokenCoord& coord = call.kv_coords[i];
    coord.pos -= 3;
    coord.segment = 1;
  }
  call.q_coords = call.kv_coords;
  EXPECT_EQ(seen(call, {}), (Rows{"10010", "11011", "11111", "10010", "11011"}));
  EXPECT_EQ(seen(call, {.rows_are_positions = true}), (Rows{"10000", "11000", "11100", "11110", "11111"}));
}

}  // namespace
}  // namespace sightline::reference
