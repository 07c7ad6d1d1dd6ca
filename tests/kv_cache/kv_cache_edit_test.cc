// What changes a cache behind its end: fork with copy on write, truncate, evict, shift.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kv_cache/cache_model.h"
#include "kv_cache/tiny_layer.h"

namespace sightline {
namespace {

using namespace test;  // NOLINT: fixtures of this folder

TEST(KvCacheEditTest, CopyOfASharedPageIsReservedBeforeAnythingIsWritten) {
  CacheModel model(tiny_layer(), poisoned(16, 2));
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 10));
  const SequenceId b = *model.play_fork(a);
  const SequenceId c = *model.play_fork(b);
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 1);
  ASSERT_TRUE(model.play_append(b, 1));  // copies
  EXPECT_FALSE(model.play_append(c, 1));
  EXPECT_FALSE(model.play_append(a, 1));
  model.check();
  ASSERT_TRUE(model.play_remove(a));
  ASSERT_TRUE(model.play_append(c, 1));  // alone on the page now: no copy
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 2);
  model.check();
}

TEST(KvCacheEditTest, WriteAfterForkCopiesOnlyTheLastSharedPage) {
  CacheModel model(tiny_layer(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 16 * 5 + 3));
  const SequenceId b = *model.play_fork(a);
  const SequenceId c = *model.play_fork(b);
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 6);
  ASSERT_TRUE(model.play_append(b, 2));
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 7);
  ASSERT_TRUE(model.play_append(c, 1));
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 8);
  ASSERT_TRUE(model.play_append(a, 1));  // nobody shares it any more
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 8);
  const void* shared = model.cache().view(a, 0)->page(4, 0).keys;
  EXPECT_EQ(model.cache().view(b, 0)->page(4, 0).keys, shared);
  EXPECT_NE(model.cache().view(b, 0)->page(5, 0).keys, model.cache().view(a, 0)->page(5, 0).keys);
  model.check();
}

TEST(KvCacheEditTest, ForkAtAPageBorderCopiesNothing) {
  CacheModel model(tiny_layer(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 32));
  const SequenceId b = *model.play_fork(a);
  ASSERT_TRUE(model.play_append(b, 1));
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 3);
  model.check();
}

TEST(KvCacheEditTest, TruncateRollsBackAndTheSlotsAreWrittenAgain) {
  CacheModel model(mixed_layers(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 6));
  ASSERT_TRUE(model.play_append(a, 30));
  for (const std::int64_t n : {36, 35, 33, 32, 31, 6}) {
    ASSERT_TRUE(model.play_truncate(a, n)) << model.error();
    model.check();
    ASSERT_FALSE(HasFatalFailure()) << n;
  }
  ASSERT_TRUE(model.play_append(a, 12));
  ASSERT_TRUE(model.play_truncate(a, 0));
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 0);
  ASSERT_TRUE(model.play_append(a, 3));
  model.check();
  EXPECT_FALSE(model.play_truncate(a, 4));
  EXPECT_EQ(model.error(), "KvCache::truncate: num_tokens = 4, expected 0 to the length, 3");
  EXPECT_FALSE(model.play_truncate(a, -1));
}

TEST(KvCacheEditTest, TruncateOfAForkLeavesTheOtherOwnersSlots) {
  CacheModel model(tiny_layer(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 12));
  const SequenceId b = *model.play_fork(a);
  ASSERT_TRUE(model.play_truncate(b, 5));
  ASSERT_TRUE(model.play_evict(b, 1, 3));
  model.check();
  ASSERT_TRUE(model.play_append(b, 2));
  model.check();
  // The copy that b made holds nothing of what it had given up.
  const KvView view = *model.cache().view(b, 0);
  for (const int slot : {1, 2, 7, 11, 15}) {
    EXPECT_TRUE(std::isnan(
        static_cast<const float*>(view.page(0, 0).keys)[view.layout.key_offset(StorageType::kF32, slot, 0)]))
        << slot;
  }
}

TEST(KvCacheEditTest, EvictDropsTokensAndWholePagesAndKeepsOrdinalsAndPositions) {
  CacheModel model(tiny_layer(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 70));
  ASSERT_TRUE(model.play_evict(a, 4, 20));
  model.check();
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 5);
  ASSERT_TRUE(model.play_evict(a, 20, 40));  // with the former: all of page 1
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 4);
  model.check();
  EXPECT_EQ(*model.cache().length(a), 70);
  EXPECT_EQ(*model.cache().num_valid(a), 34);
  ASSERT_TRUE(model.play_append(a, 3));
  EXPECT_EQ(model.cache().view(a, 0)->coords[72].pos, 72);
  model.check();
  EXPECT_FALSE(model.play_evict(a, 5, 74));
  EXPECT_FALSE(model.play_evict(a, -1, 3));
  EXPECT_FALSE(model.play_evict(a, 9, 8));
}

TEST(KvCacheEditTest, AppendAfterTruncateIntoAnEvictedPageGetsANewOne) {
  CacheModel model(tiny_layer(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 40));
  ASSERT_TRUE(model.play_evict(a, 16, 32));
  ASSERT_TRUE(model.play_truncate(a, 20));
  model.check();
  ASSERT_TRUE(model.play_append(a, 2));
  model.check();
  EXPECT_EQ(model.cache().view(a, 0)->coords[20].pos, 16);
}

TEST(KvCacheEditTest, ShiftMovesPositionsAndTurnsStoredKeysByTheDifference) {
  for (const StorageType type : {StorageType::kF32, StorageType::kBf16}) {
    KvCacheOptions options = poisoned();
    options.key_type = type;
    CacheModel model(mixed_layers(), options);
    const SequenceId a = model.add_sequence();
    ASSERT_TRUE(model.play_append(a, 30));
    ASSERT_TRUE(model.play_shift(a, 3, 30, 1000));
    model.check();
    ASSERT_TRUE(model.play_shift(a, 5, 20, -700));
    model.check();
    ASSERT_TRUE(model.play_shift(a, 0, 30, 0));
    ASSERT_TRUE(model.play_shift(a, 7, 7, 5));
    model.check();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(model.play_shift(a, 0, 30, i % 3 == 2 ? -2 : 1));
    model.check();
  }
}

TEST(KvCacheEditTest, ShiftLeavesTheOtherSequencesOfAForkAlone) {
  CacheModel model(mixed_layers(), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 40));
  const SequenceId b = *model.play_fork(a);
  ASSERT_TRUE(model.play_shift(b, 20, 40, 7));
  model.check();
  // Layer 3 stores keys before rotation: its pages stay shared.
  EXPECT_EQ(model.cache().view(a, 3)->page(1, 0).keys, model.cache().view(b, 3)->page(1, 0).keys);
  EXPECT_NE(model.cache().view(a, 0)->page(1, 0).keys, model.cache().view(b, 0)->page(1, 0).keys);
  EXPECT_EQ(model.cache().view(a, 0)->page(0, 0).keys, model.cache().view(b, 0)->page(0, 0).keys);
}

TEST(KvCacheEditTest, ShiftThatLacksPagesOrRangeChangesNothing) {
  std::vector<AttentionSpec> layers = tiny_layer();
  layers[0].rope.pairing = RopePairing::kHalfSplit;
  layers[0].rope.rotary_dim = 2;
  CacheModel model(layers, poisoned(16, 3));
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 32));
  const SequenceId b = *model.play_fork(a);
  EXPECT_FALSE(model.play_shift(b, 0, 32, 5));
  EXPECT_NE(model.error().find("2 pages more are needed and 1"), std::string::npos) << model.error();
  model.check();
  EXPECT_TRUE(model.play_shift(b, 0, 16, 5));
  EXPECT_FALSE(model.play_shift(a, 0, 33, 5));
  EXPECT_FALSE(model.play_shift(a, 0, 32, std::numeric_limits<std::int64_t>::max()));
  EXPECT_FALSE(model.play_shift(a, 0, 32, std::numeric_limits<std::int64_t>::min()));
  EXPECT_FALSE(model.play_shift(a, 0, 32, std::int64_t{1} << 53));
  EXPECT_FALSE(model.play_shift(a, 3, 32, -4));
  EXPECT_EQ(model.error(), "KvCache::shift: delta = -4 moves ordinal 3 to pos -1, expected 0 to 2147483647");
  model.check();
}

}  // namespace
}  // namespace sightline
