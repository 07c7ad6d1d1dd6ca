#include "sightline/kv_cache/prefix_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "sightline/base/rng.h"

namespace sightline {
namespace {

std::uint64_t constant_hash(std::span<const std::byte>, std::uint64_t) { return 7; }

std::vector<std::int32_t> range(std::int32_t begin, std::int32_t end) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

const PrefixIdentity kPlain{"smol", "", ""};

TEST(PrefixIndexTest, FindsTheLongestCommonPrefixTokenByToken) {
  for (const auto hash : {PrefixIndex::default_hash, constant_hash}) {
    PrefixIndex index(4, hash);
    index.insert(1, kPlain, range(0, 10));
    index.insert(2, kPlain, range(0, 23));
    auto other = range(0, 30);
    other[17] = -1;
    EXPECT_EQ(index.find(kPlain, other), (PrefixMatch{2, 17}));
    EXPECT_EQ(index.find(kPlain, range(0, 5)), (PrefixMatch{1, 5}));  // both have 5: the least id
    EXPECT_EQ(index.find(kPlain, range(0, 3)), std::nullopt);         // less than a block
    EXPECT_EQ(index.find(kPlain, range(1, 30)), std::nullopt);
    EXPECT_EQ(index.find(kPlain, {}), std::nullopt);
  }
}

TEST(PrefixIndexTest, EveryFieldOfTheIdentityKeepsSequencesApart) {
  for (const auto hash : {PrefixIndex::default_hash, constant_hash}) {
    PrefixIndex index(4, hash);
    const auto tokens = range(0, 8);
    index.insert(1, {"m", "x", ""}, tokens);
    EXPECT_EQ(index.find({"m", "x", ""}, tokens), (PrefixMatch{1, 8}));
    for (const PrefixIdentity& other : {PrefixIdentity{"n", "x", ""},
                                        {"m", "", "x"},
                                        {"m", "", ""},
                                        {"mx", "", ""},
                                        {"m", "x", "s"},
                                        {"", "mx", ""}}) {
      EXPECT_EQ(index.find(other, tokens), std::nullopt);
    }
  }
}

TEST(PrefixIndexTest, ACollisionIsNoHit) {
  PrefixIndex index(4, constant_hash);
  index.insert(1, kPlain, {{1, 2, 3, 4, 5, 6, 7, 8}});
  index.insert(2, kPlain, {{9, 9, 9, 9}});
  EXPECT_EQ(index.find(kPlain, std::vector<std::int32_t>{1, 2, 3, 5}), std::nullopt);
  EXPECT_EQ(index.find(kPlain, std::vector<std::int32_t>{9, 9, 9, 9, 1}), (PrefixMatch{2, 4}));
}

TEST(PrefixIndexTest, EraseAndReplaceForgetTheFormerTokens) {
  for (const auto hash : {PrefixIndex::default_hash, constant_hash}) {
    PrefixIndex index(2, hash);
    index.insert(1, kPlain, range(0, 8));
    index.insert(2, kPlain, range(0, 6));
    index.insert(1, kPlain, range(50, 58));
    EXPECT_EQ(index.find(kPlain, range(0, 8)), (PrefixMatch{2, 6}));
    EXPECT_EQ(index.find(kPlain, range(50, 60)), (PrefixMatch{1, 8}));
    index.erase(2);
    index.erase(2);
    EXPECT_EQ(index.find(kPlain, range(0, 8)), std::nullopt);
    EXPECT_EQ(index.size(), 1U);
  }
}

TEST(PrefixIndexTest, AForcedCollisionChangesNoAnswerOnRandomTokens) {
  PrefixIndex good(3);
  PrefixIndex bad(3, constant_hash);
  Rng rng(5);
  int num_hits = 0;
  for (SequenceId id = 0; id < 60; ++id) {
    std::vector<std::int32_t> tokens(rng.next_below(20));
    for (auto& token : tokens) token = static_cast<std::int32_t>(rng.next_below(2));
    const PrefixIdentity identity{"m", rng.next_below(2) == 0 ? "a" : "b", ""};
    EXPECT_EQ(good.find(identity, tokens), bad.find(identity, tokens));
    num_hits += good.find(identity, tokens).has_value() ? 1 : 0;
    good.insert(id, identity, tokens);
    bad.insert(id, identity, tokens);
    if (id % 7 == 3) {
      good.erase(id - 2);
      bad.erase(id - 2);
    }
  }
  EXPECT_GT(num_hits, 20);
}

// What a server does with a match: the fork begins like the new request and owns what comes after.
TEST(PrefixIndexTest, MatchIsReusedByForkAndTruncate) {
  AttentionSpec spec;
  spec.heads = {1, 1, 2, 2};
  auto cache = KvCache::create({spec}, {.page_size = 16, .poison = true});
  ASSERT_TRUE(cache);
  const SequenceId a = cache->add_sequence();
  const std::vector<float> numbers(2 * 40, 1.0F);
  const auto rows = dense_view<const float, 3>(numbers.data(), {40, 1, 2});
  ASSERT_TRUE(cache->append(a, coords_range(0, 40), {}));
  ASSERT_TRUE(cache->write(a, 0, rows, rows));
  PrefixIndex index(16);
  index.insert(a, kPlain, range(0, 40));
  auto request = range(0, 37);
  request[35] = 99;
  const auto match = index.find(kPlain, request);
  ASSERT_TRUE(match);
  const auto b = cache->fork(match->sequence);
  ASSERT_TRUE(b);
  ASSERT_TRUE(cache->truncate(*b, match->num_tokens));
  EXPECT_EQ(*cache->length(*b), 35);
  EXPECT_EQ(*cache->length(a), 40);
  EXPECT_EQ(cache->stats().num_pages_allocated, 3);
}

}  // namespace
}  // namespace sightline
