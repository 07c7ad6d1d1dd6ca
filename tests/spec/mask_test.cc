// Masks: text form, checks, pictures, reasons. The rules themselves are pinned by tests/cases.
#include "sightline/spec/mask.h"

#include <gtest/gtest.h>

#include "sightline/base/rng.h"
#include "spec/random_spec.h"

namespace sightline {
namespace {

std::string message_of(const auto& result) {
  return result ? std::string("no error") : result.error().message;
}

TEST(MaskTextTest, PrintsWithTheFewestParentheses) {
  for (const char* text :
       {"causal", "causal & (window(4096) | first(4))", "causal & window(4) & segment",
        "causal | span & chunk(3)", "(causal | span) & window(8) & ahead(7)", "!causal", "!!causal",
        "!(causal & segment)", "!causal & segment", "causal & (window(4) & segment)", "causal | (all | none)",
        "query_is(31) | key_is(0)", "tree | dense & dilated(2)"}) {
    const auto mask = parse_mask(text);
    ASSERT_TRUE(mask) << mask.error().message;
    EXPECT_EQ(to_string(*mask), text);
  }
}

TEST(MaskTextTest, NotBindsBeforeAndBeforeOr) {
  const MaskSpec causal = mask_rule(MaskOp::kCausal);
  const MaskSpec window = mask_rule(MaskOp::kWindow, 4);
  const MaskSpec segment = mask_rule(MaskOp::kSegment);
  EXPECT_EQ(*parse_mask("causal | window(4) & !segment"), causal | (window & !segment));
  EXPECT_EQ(*parse_mask("causal & window(4) | segment"), (causal & window) | segment);
  EXPECT_EQ(*parse_mask(" \tcausal&(window( 4 )|segment)\n"), causal & (window | segment));
}

TEST(MaskTextTest, ErrorsNameColumnExpectationAndWhatWasFound) {
  struct Row {
    const char* text;
    std::size_t column;
    const char* message;
  };
  for (const auto& [text, column, message] :
       {Row{"", 1, "expected a rule, '!' or '(', the text ends"},
        Row{"causal &", 9, "expected a rule"},
        Row{"causal window(4)", 8, "expected '&', '|' or the end, got 'w'"},
        Row{"causal & wimdow(4)", 10, "there is no rule \"wimdow\"; did you mean \"window\"?"},
        Row{"window", 7, "expected '(' and a number after window, the text ends"},
        Row{"window()", 8, "expected a number, got ')'"},
        Row{"window(0)", 8, "window(0): expected 1 or more"},
        Row{"window(-3)", 8, "expected 1 or more"},
        Row{"ahead(-1)", 7, "expected 0 or more"},
        Row{"window(4", 9, "expected ')', the text ends"},
        Row{"window(4.5)", 9, "expected ')', got '.'"},
        Row{"window(99999999999999999999)", 8, "too large"},
        Row{"window(9223372036854775807)", 8, "at most 2^60"},
        Row{"query_is(32)", 10, "a bit from 0 to 31"},
        Row{"(causal", 8, "expected '&', '|' or ')', the text ends"},
        Row{"causal)", 7, "got ')'"},
        Row{"causal(3)", 7, "got '('"},
        Row{"causal & \xff", 10, "byte 0xff"},
        Row{"causal && segment", 9, "got '&'"},
        Row{"sliding", 1,
            "there is no rule \"sliding\"; the rules are all, none, causal, window, ahead, first"},
        Row{"Causal", 1, "there is no rule \"Causal\"; did you mean \"causal\"?"}}) {
    std::size_t at = 0;
    const auto mask = parse_mask(text, &at);
    ASSERT_FALSE(mask) << text;
    EXPECT_EQ(at, column) << text;
    EXPECT_EQ(mask.error().kind, ErrorKind::kInvalidArgument);
    EXPECT_TRUE(mask.error().message.starts_with(fmt::format("mask: column {}: ", column)))
        << mask.error().message;
    EXPECT_NE(mask.error().message.find(message), std::string::npos) << mask.error().message;
  }
}

TEST(MaskTextTest, DepthAndSizeAreLimitedWithoutACrash) {
  EXPECT_NE(message_of(parse_mask(std::string(1000000, '('))).find("nested deeper"), std::string::npos);
  EXPECT_NE(message_of(parse_mask(std::string(1000000, '!'))).find("nested deeper"), std::string::npos);
  std::string wide = "all";
  for (int i = 0; i < 1000; ++i) wide += " & all";
  EXPECT_NE(message_of(parse_mask(wide)).find("more than 256"), std::string::npos);
  std::string deep = "all";
  for (int i = 0; i < 40; ++i) deep = "all & (" + deep + ")";
  EXPECT_NE(message_of(parse_mask(deep)).find("deeper than 32"), std::string::npos);
  std::string negated = std::string(200, '!') + "all";
  EXPECT_EQ(to_string(*parse_mask(negated)), negated);
}

TEST(MaskTextTest, RandomProgramsParseBackToThemselves) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Rng rng(seed);
    const MaskSpec mask = testing::random_mask(rng, testing::random_in(rng, 1, 20), testing::kAllOps);
    if (!validate(mask)) continue;
    const auto again = parse_mask(to_string(mask));
    ASSERT_TRUE(again) << to_string(mask) << ": " << again.error().message;
    ASSERT_EQ(*again, mask) << to_string(mask);
  }
}

TEST(MaskTest, ProgramsThatDoNotLeaveOneValueAreRefused) {
  const MaskNode leaf{MaskOp::kAll, 0};
  const MaskNode both{MaskOp::kAnd, 0};
  EXPECT_NE(message_of(validate(MaskSpec{{}})).find("leaves 0 values"), std::string::npos);
  EXPECT_NE(message_of(validate(MaskSpec{{leaf, leaf}})).find("leaves 2 values"), std::string::npos);
  EXPECT_NE(message_of(validate(MaskSpec{{leaf, both}})).find("node 1 takes 2 values, 1 are there"),
            std::string::npos);
  EXPECT_NE(message_of(validate(MaskSpec{{{MaskOp::kNot, 0}}})).find("takes 1"), std::string::npos);
  EXPECT_NE(message_of(validate(MaskSpec{{{MaskOp::kCausal, 3}}})).find("causal(3): expected no number"),
            std::string::npos);
  EXPECT_NE(message_of(validate(MaskSpec{{{static_cast<MaskOp>(99), 0}}})).find("operator 99"),
            std::string::npos);
  EXPECT_NE(message_of(validate(MaskSpec{{leaf, {MaskOp::kNot, 5}}})).find("n = 5"), std::string::npos);
}

TEST(MaskTest, TablesAreCheckedForTheRowsUsed) {
  const MaskSpec dense = mask_rule(MaskOp::kDense);
  const MaskSpec tree = mask_rule(MaskOp::kTree);
  const std::vector<std::uint8_t> ones(6, 1);
  MaskTables tables{dense_view(ones.data(), std::array<std::int64_t, 2>{2, 3}), {}, {}, {}};
  EXPECT_TRUE(validate_tables(dense, tables, 2, 3));
  EXPECT_NE(message_of(validate_tables(dense, tables, 2, 4)).find("[2, 3], expected [2, 4]"),
            std::string::npos);
  EXPECT_TRUE(validate_tables(MaskSpec{}, {}, 100, 100)) << "unused tables are not asked for";
  const std::vector<std::int32_t> nodes{-1, 0, 1};
  const std::vector<std::int32_t> parent{-1, 0};
  const std::vector<std::int32_t> cycle{-1, 1};
  const std::vector<std::int32_t> beyond{-1, 0, 2};
  EXPECT_TRUE(validate_tables(tree, {{}, nodes, nodes, parent}, 3, 3));
  EXPECT_NE(message_of(validate_tables(tree, {{}, nodes, nodes, cycle}, 3, 3)).find("parent[1] = 1"),
            std::string::npos);
  EXPECT_NE(message_of(validate_tables(tree, {{}, nodes, beyond, parent}, 3, 3)).find("kv_node[2] = 2"),
            std::string::npos);
  EXPECT_NE(message_of(validate_tables(tree, {{}, nodes, nodes, parent}, 4, 3)).find("q_node has 3"),
            std::string::npos);
}

TEST(MaskTest, DenseWithStrideZeroRepeatsOneRow) {
  const std::vector<std::uint8_t> row{1, 0, 1};
  const MaskTables tables{{row.data(), {3, 3}, {0, 1}}, {}, {}, {}};
  const auto tokens = coords_range(0, 3);
  EXPECT_EQ(draw(mask_rule(MaskOp::kDense), tables, tokens, tokens), "1 0 1\n1 0 1\n1 0 1\n");
}

TEST(MaskTest, PictureHasPositionsOnBothAxesWithLabels) {
  EXPECT_EQ(
      draw(*parse_mask("causal & window(3)"), {}, coords_range(9, 12), coords_range(8, 12), {.labels = true}),
      "   |  8  9 10 11\n"
      "---+------------\n"
      " 9 |  1  1  0  0\n"
      "10 |  1  1  1  0\n"
      "11 |  0  1  1  1\n");
}

TEST(MaskWhyTest, NamesTheLeafThatDecided) {
  const MaskSpec mask = *parse_mask("causal & (window(3) | first(1))");
  const auto ask = [&](std::int64_t q, std::int64_t k) {
    return why(mask, {}, {{.pos = q}, 0}, {{.pos = k}, 0});
  };
  const Why far = ask(5, 1);
  EXPECT_FALSE(far.visible);
  EXPECT_FALSE(far.leaves[0].decided);  // causal sees it; the others do not
  EXPECT_TRUE(far.leaves[1].decided);
  EXPECT_TRUE(far.leaves[2].decided);
  EXPECT_EQ(
      far.text,
      "Query 5 does not see key 1: window(3) is false (the key is 4 back), and first(1) is false (the key is "
      "number 1 of its segment, from 0).");
  const Why kept = ask(5, 0);
  EXPECT_TRUE(kept.visible);
  EXPECT_TRUE(kept.leaves[2].decided);
  EXPECT_EQ(ask(2, 4).text, "Query 2 does not see key 4: causal is false (the key is 2 ahead).");
}

TEST(MaskWhyTest, PaddingSettlesItBeforeAnyRule) {
  const MaskSpec all = mask_rule(MaskOp::kAll);
  const Why pad_key = why(all, {}, {{.pos = 3}, 0}, {{.valid = false}, 0});
  EXPECT_TRUE(pad_key.padding);
  EXPECT_FALSE(pad_key.visible);
  EXPECT_NE(pad_key.text.find("padding"), std::string::npos);
  EXPECT_TRUE(why(all, {}, {{.valid = false}, 0}, {{.pos = 0}, 0}).padding);
}

TEST(MaskWhyTest, AgreesWithTheDefinitionAndFlippingADecidingLeafFlipsTheAnswer) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Rng rng(seed);
    const MaskSpec mask = testing::random_mask(rng, testing::random_in(rng, 1, 6), testing::kAllOps);
    auto tokens = testing::random_sequence(rng, 20);
    testing::disturb(rng, tokens);
    const testing::RandomTables tables(rng, 20, 20);
    const auto at = [&] {
      const auto i = testing::random_in(rng, 0, 19);
      return TokenRef{tokens[static_cast<std::size_t>(i)], i};
    };
    const TokenRef q = at();
    const TokenRef k = at();
    const Why reason = why(mask, tables.view(), q, k);
    ASSERT_EQ(reason.visible, is_visible(mask, tables.view(), q, k));
    ASSERT_FALSE(reason.text.empty());
    if (reason.padding) continue;
    std::size_t leaf_idx = 0;
    for (std::size_t i = 0; i < mask.nodes.size(); ++i) {
      if (!is_leaf(mask.nodes[i].op)) continue;
      MaskSpec flipped = mask;
      flipped.nodes[i] = {reason.leaves[leaf_idx].sees ? MaskOp::kNone : MaskOp::kAll, 0};
      ASSERT_EQ(is_visible(flipped, tables.view(), q, k) != reason.visible, reason.leaves[leaf_idx].decided)
          << to_string(mask) << " leaf " << leaf_idx;
      ++leaf_idx;
    }
  }
}

}  // namespace
}  // namespace sightline
