#include "sightline/spec/loss.h"

#include <gtest/gtest.h>

#include "sightline/spec/mask.h"

namespace sightline {
namespace {

using Targets = std::vector<std::int64_t>;

TEST(LossTargetsTest, EachPositionPredictsTheNextToken) {
  EXPECT_EQ(loss_targets({}, coords_range(0, 4), {}), (Targets{1, 2, 3, -1}));
}

TEST(LossTargetsTest, PaddingIsExcludedByPositionOnEitherSide) {
  auto tokens = coords_range(0, 6);
  tokens[0].valid = tokens[5].valid = false;
  EXPECT_EQ(loss_targets({}, tokens, {}), (Targets{-1, 2, 3, 4, -1, -1}));
}

TEST(LossTargetsTest, TheNextDocumentsFirstTokenIsNoTargetUnlessAskedFor) {
  auto tokens = coords_range(0, 4);
  tokens[2].segment = tokens[3].segment = 1;
  EXPECT_EQ(loss_targets({}, tokens, {}), (Targets{1, -1, 3, -1}));
  LossSpec across;
  across.next_document = NextDocumentScope::kIn;
  EXPECT_EQ(loss_targets(across, tokens, {}), (Targets{1, 2, 3, -1}));
}

TEST(LossTargetsTest, PromptTokensAreNoTargetsUnderOut) {
  const std::vector<std::uint8_t> is_prompt{1, 1, 0, 0};
  LossSpec out;
  out.prompt = PromptScope::kOut;
  // The last prompt token still predicts the first answer token.
  EXPECT_EQ(loss_targets(out, coords_range(0, 4), is_prompt), (Targets{-1, 2, 3, -1}));
  EXPECT_EQ(loss_targets({}, coords_range(0, 4), is_prompt), (Targets{1, 2, 3, -1}));
}

TEST(LossTargetsTest, OtherShiftsAreExpressible) {
  LossSpec none;
  none.shift = 0;
  EXPECT_EQ(loss_targets(none, coords_range(0, 3), {}), (Targets{0, 1, 2}));
  LossSpec two;
  two.shift = 2;
  EXPECT_EQ(loss_targets(two, coords_range(0, 3), {}), (Targets{2, -1, -1}));
  EXPECT_TRUE(loss_targets(two, {}, {}).empty());
  two.shift = 17;
  EXPECT_FALSE(validate(two));
}

}  // namespace
}  // namespace sightline
