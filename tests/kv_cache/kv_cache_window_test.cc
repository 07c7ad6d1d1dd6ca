// Layers with a window free pages that no later query sees, and what that forbids.
#include <gtest/gtest.h>

#include "kv_cache/cache_model.h"
#include "kv_cache/tiny_layer.h"

namespace sightline {
namespace {

using namespace test;  // NOLINT: fixtures of this folder

TEST(KvCacheWindowTest, WindowedLayerFreesPagesThatNoNewQuerySees) {
  CacheModel model(tiny_layer(window(20)), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 36));
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 3);  // 36 is the first query that misses 0..15
  // A query at 35 still sees 16; page 0 ends at 15, which 35 - 15 = 20 does not see.
  ASSERT_TRUE(model.play_truncate(a, 35));
  ASSERT_TRUE(model.play_append(a, 1));
  EXPECT_EQ(model.cache().view(a, 0)->page(0, 0).keys, nullptr);
  EXPECT_NE(model.cache().view(a, 0)->page(1, 0).keys, nullptr);
  model.check();
  ASSERT_TRUE(model.play_append(a, 15));  // from 36 on: 17 is seen
  EXPECT_NE(model.cache().view(a, 0)->page(1, 0).keys, nullptr);
  ASSERT_TRUE(model.play_append(a, 1));  // 51 - 31 = 20
  EXPECT_EQ(model.cache().view(a, 0)->page(1, 0).keys, nullptr);
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 2);
  model.check();
}

TEST(KvCacheWindowTest, WindowedLayerKeepsThePagesThatTheOldestQueryOfAChunkSees) {
  CacheModel model(tiny_layer(window(4)), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 17));
  ASSERT_TRUE(model.play_append(a, 100));  // the query at 17 sees 14, on page 0
  EXPECT_NE(model.cache().view(a, 0)->page(0, 0).keys, nullptr);
  ASSERT_TRUE(model.play_append(a, 1));  // 117 sees 114, on page 7
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 1);
  model.check();
}

TEST(KvCacheWindowTest, WindowedLayerKeepsFirstTokensOfItsSegment) {
  const MaskSpec mask =
      mask_rule(MaskOp::kCausal) & (mask_rule(MaskOp::kWindow, 8) | mask_rule(MaskOp::kFirst, 2));
  CacheModel model(tiny_layer(mask), poisoned());
  const SequenceId a = model.add_sequence();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(model.play_append(a, 10));
  const KvView view = *model.cache().view(a, 0);
  EXPECT_NE(view.page(0, 0).keys, nullptr);
  EXPECT_EQ(view.page(1, 0).keys, nullptr);
  EXPECT_EQ(view.page(4, 0).keys, nullptr);
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 3);
  model.check();
}

TEST(KvCacheWindowTest, FreedTokensAreInvisibleByRuleToEveryQueryFromTheLastAppendOn) {
  for (const std::int64_t chunk : {1, 3, 17}) {
    const MaskSpec mask =
        mask_rule(MaskOp::kCausal) & (mask_rule(MaskOp::kWindow, 21) | mask_rule(MaskOp::kFirst, 3));
    CacheModel model(tiny_layer(mask), poisoned());
    const SequenceId a = model.add_sequence();
    for (std::int64_t pos = 0; pos < 150; pos += chunk) {
      ASSERT_TRUE(model.play_append(a, chunk));
      const KvView view = *model.cache().view(a, 0);
      for (std::int64_t i = 0; i < view.num_slots; ++i) {
        if (view.page(i / 16, 0).keys != nullptr) continue;
        const TokenRef key{view.coords[static_cast<std::size_t>(i)], i};
        for (std::int64_t q = pos; q < pos + chunk; ++q) {
          EXPECT_FALSE(is_visible(mask, {}, {{.pos = q}, q}, key)) << q << " sees freed " << i;
        }
      }
    }
    EXPECT_EQ(model.cache().view(a, 0)->page(3, 0).keys, nullptr) << "nothing was freed";
  }
}

TEST(KvCacheWindowTest, TruncateBelowAFreedWindowIsAnErrorAndChangesNothing) {
  CacheModel model(tiny_layer(window(8)), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 40));
  ASSERT_TRUE(model.play_append(a, 1));  // frees 0..31
  ASSERT_EQ(model.cache().view(a, 0)->page(1, 0).keys, nullptr);
  for (const std::int64_t n : {38, 33, 32, 20, 1}) {
    EXPECT_FALSE(model.play_truncate(a, n)) << n;
    EXPECT_NE(model.error().find("layer 0"), std::string::npos) << model.error();
    model.check();
  }
  EXPECT_TRUE(model.play_truncate(a, 39));  // the next query, 39, sees 32 at most
  ASSERT_TRUE(model.play_append(a, 5));
  model.check();
  EXPECT_TRUE(model.play_truncate(a, 0));  // a fresh start needs nothing
  model.check();
}

TEST(KvCacheWindowTest, AnAppendCanAlwaysBeTakenBack) {
  std::vector<float> numbers(32 * 2, 1.0F);
  const auto rows = [&](std::int64_t n) { return dense_view<const float, 3>(numbers.data(), {n, 1, 2}); };
  KvCache cache = *KvCache::create(tiny_layer(window(8)), poisoned());
  const SequenceId a = cache.add_sequence();
  ASSERT_TRUE(cache.append(a, coords_range(0, 32), {}));
  ASSERT_TRUE(cache.write(a, 0, rows(32), rows(32)));
  ASSERT_TRUE(cache.append(a, coords_range(1000, 1001), {}));  // a gap: frees all that 32 would see
  ASSERT_TRUE(cache.truncate(a, 32));
  EXPECT_EQ(*cache.length(a), 32);
  EXPECT_FALSE(cache.append(a, coords_range(32, 33), {})) << "sees what is freed";
  ASSERT_TRUE(cache.append(a, coords_range(39, 40), {}));
  ASSERT_TRUE(cache.write(a, 0, rows(1), rows(1)));
}

TEST(KvCacheWindowTest, WindowReturnsItsPagesToAnAppendAtTheLimit) {
  CacheModel model(tiny_layer(window(8)), poisoned(16, 2));
  const SequenceId a = model.add_sequence();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(model.play_append(a, 1)) << i << ": " << model.error();
  EXPECT_LE(model.cache().stats().num_pages_allocated, 2);
  model.check();
}

TEST(KvCacheWindowTest, PagesThatAWindowReturnsServeTheLayersBeforeIt) {
  // Alike in shape, so the pool counts their pages together.
  std::vector<AttentionSpec> layers = tiny_layer();
  layers.push_back(tiny_layer(window(4)).front());
  CacheModel model(layers, poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 64));
  ASSERT_TRUE(model.play_append(a, 1));  // the window returns three pages, both layers want one
  model.check();
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 5 + 2);
}

TEST(KvCacheWindowTest, AppendBehindAFreedWindowIsRefused) {
  CacheModel model(tiny_layer(window(8)), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 40));
  ASSERT_TRUE(model.play_append(a, 1));
  EXPECT_FALSE(model.play_append(a, coords_range(38, 39)));
  EXPECT_EQ(model.error(),
            "KvCache::append: layer 0 has freed position 31, which a query at position 38 sees (window 8)");
  model.check();
}

TEST(KvCacheWindowTest, ShiftThatBringsFreedTokensBackIntoSightIsRefused) {
  CacheModel model(tiny_layer(window(8)), poisoned());
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 60));
  ASSERT_TRUE(model.play_append(a, 1));
  ASSERT_EQ(model.cache().view(a, 0)->page(2, 0).keys, nullptr);
  EXPECT_FALSE(model.play_shift(a, 48, 61, -10));  // 51 would be next and see 47
  EXPECT_NE(model.error().find("has freed position 47"), std::string::npos) << model.error();
  EXPECT_TRUE(model.play_shift(a, 0, 61, 10));  // all together: distances stay
  model.check();
}

}  // namespace
}  // namespace sightline
