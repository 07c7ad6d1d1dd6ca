#include "text/merge.h"

#include <gtest/gtest.h>

#include <random>

namespace sightline::text {
namespace {

/// The definition: look for the leftmost pair of the lowest key, join it, start again.
std::vector<Symbol> merge_plainly(std::vector<Symbol> symbols, const MergeTable& table) {
  for (;;) {
    std::size_t best = symbols.size();
    Merge best_merge;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge merge = table.find(symbols[i].id, symbols[i + 1].id);
      if (merge.key < best_merge.key) {
        best = i;
        best_merge = merge;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best].id = best_merge.id;
    symbols[best].length += symbols[best + 1].length;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTest, EqualsTheDefinitionOnRandomTablesForShortAndLongWords) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int num_letters = 1 + static_cast<int>(random() % 4);
    const int num_merges = static_cast<int>(random() % 30);
    MergeTable table(static_cast<std::size_t>(num_merges));
    int next_id = num_letters;
    for (int rank = 0; rank < num_merges; ++rank) {
      const auto left = static_cast<TokenId>(random() % static_cast<unsigned>(next_id));
      const auto right = static_cast<TokenId>(random() % static_cast<unsigned>(next_id));
      // Few distinct keys, so that ties are decided by position.
      if (table.insert(left, right, {static_cast<std::uint32_t>(random() % 6), next_id})) ++next_id;
    }
    const std::size_t length = random() % 90;  // both sides of the limit between scanning and the heap
    std::vector<Symbol> symbols;
    for (std::uint32_t i = 0; i < length; ++i) {
      symbols.push_back({static_cast<TokenId>(random() % static_cast<unsigned>(num_letters)), i, 1});
    }
    const std::vector<Symbol> expected = merge_plainly(symbols, table);
    merge_symbols(symbols,
                  [&](const Symbol& left, const Symbol& right) { return table.find(left.id, right.id); });
    ASSERT_EQ(symbols.size(), expected.size());
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      EXPECT_EQ(symbols[i].id, expected[i].id);
      EXPECT_EQ(symbols[i].begin, expected[i].begin);
      EXPECT_EQ(symbols[i].length, expected[i].length);
    }
  }
}

TEST(MergeTest, LongWordLooksUpANearLinearNumberOfPairs) {
  MergeTable table(40);
  for (TokenId id = 0; id < 20; ++id) table.insert(id, id, {static_cast<std::uint32_t>(id), id + 1});
  for (const std::size_t length : {std::size_t{1000}, std::size_t{200000}}) {
    std::vector<Symbol> symbols(length);
    for (std::uint32_t i = 0; i < length; ++i) symbols[i] = {0, i, 1};
    std::size_t num_lookups = 0;
    merge_symbols(symbols, [&](const Symbol& left, const Symbol& right) {
      ++num_lookups;
      return table.find(left.id, right.id);
    });
    // One for each pair at first, at most two for each of the fewer than `length` merges.
    EXPECT_LE(num_lookups, 3 * length);
  }
}

TEST(MergeTest, TableKeepsTheFirstOfEqualPairs) {
  MergeTable table(2);
  EXPECT_TRUE(table.insert(1, 2, {5, 9}));
  EXPECT_FALSE(table.insert(1, 2, {3, 8}));
  EXPECT_EQ(table.find(1, 2).id, 9);
  EXPECT_EQ(table.find(2, 1).id, -1);
  EXPECT_EQ(table.find(-1, 2).key, Merge::kNoMerge);
}

}  // namespace
}  // namespace sightline::text
