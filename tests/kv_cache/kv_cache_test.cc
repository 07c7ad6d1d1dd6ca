#include "sightline/kv_cache/kv_cache.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kv_cache/cache_model.h"
#include "kv_cache/tiny_layer.h"

namespace sightline {
namespace {

using namespace test;  // NOLINT: fixtures of this folder

TEST(KvCacheTest, HoldsWhatWasAppendedForEveryPageSizeAndType) {
  for (const int page_size : {16, 48, 64, 128, 256}) {
    for (const StorageType key_type : {StorageType::kF32, StorageType::kBf16}) {
      for (const StorageType value_type : {StorageType::kF32, StorageType::kBf16}) {
        for (const bool poison : {true, false}) {
          KvCacheOptions options = poisoned(page_size);
          options.key_type = key_type;
          options.value_type = value_type;
          options.poison = poison;
          CacheModel model(mixed_layers(), options);
          const SequenceId a = model.add_sequence();
          const SequenceId b = model.add_sequence();
          for (const std::int64_t n : {1, 15, 1, 30, 0, 1, 100}) {
            ASSERT_TRUE(model.play_append(a, n)) << model.error();
            ASSERT_TRUE(model.play_append(b, n / 2));
            model.check();
            ASSERT_FALSE(HasFatalFailure()) << "page size " << page_size << " poison " << poison;
          }
        }
      }
    }
  }
}

TEST(KvCacheTest, StoresKeyHeadsOnlyAndCountsTheirBytes) {
  AttentionSpec spec;
  spec.heads = {32, 8, 128, 64};
  KvCacheOptions options;
  options.value_type = StorageType::kBf16;
  CacheModel model({spec, spec}, options);
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 10));
  EXPECT_EQ(model.cache().stats().bytes_used, 10 * 2 * 8 * (128 * 4 + 64 * 2));
  EXPECT_EQ(model.cache().stats().num_pages_allocated, 2);
  EXPECT_EQ(model.cache().stats().bytes_allocated, 2 * 64 * 8 * (128 * 4 + 64 * 2));
}

TEST(KvCacheTest, PaddingTakesNoOrdinalAndOwnRotaryPositionsAreKept) {
  CacheModel model(mixed_layers(), poisoned());
  const SequenceId a = model.add_sequence();
  std::vector<TokenCoord> coords = coords_range(0, 20);
  for (const std::size_t i : {0U, 1U, 9U, 18U, 19U}) coords[i] = {.pos = -7, .valid = false};
  ASSERT_TRUE(model.play_append(a, coords, 1000)) << model.error();
  model.check();
  EXPECT_EQ(*model.cache().length(a), 15);
  EXPECT_EQ(*model.cache().num_valid(a), 15);
  ASSERT_TRUE(model.play_append(a, std::vector<TokenCoord>(3, {.valid = false})));
  ASSERT_TRUE(model.play_append(a, 4));
  model.check();
  EXPECT_EQ(*model.cache().length(a), 19);
}

TEST(KvCacheTest, PaddingThatWaitsForItsRowsCanBeDropped) {
  std::vector<float> numbers(2 * 8, 1.0F);
  const auto rows = [&](std::int64_t n) { return dense_view<const float, 3>(numbers.data(), {n, 1, 2}); };
  KvCache cache = *KvCache::create(tiny_layer(), poisoned());
  const SequenceId a = cache.add_sequence();
  const TokenCoord pad{.valid = false};
  ASSERT_TRUE(cache.append(a, std::vector{pad, pad}, {}));
  EXPECT_FALSE(cache.append(a, coords_range(0, 1), {})) << "rows of padding are still to come";
  ASSERT_TRUE(cache.truncate(a, 0));
  const std::vector<TokenCoord> mixed{pad, {.pos = 0}, pad, {.pos = 1}, {.pos = 2}};
  ASSERT_TRUE(cache.append(a, mixed, {}));
  ASSERT_TRUE(cache.truncate(a, 2));
  EXPECT_FALSE(cache.write(a, 0, rows(5), rows(5)));
  ASSERT_TRUE(cache.write(a, 0, rows(4), rows(4))) << "up to the last token that is left";
  EXPECT_EQ(*cache.length(a), 2);
}

TEST(KvCacheTest, AppendThatFailsLeavesTheCacheUnchangedAtEveryLimit) {
  // 4 layers; sequence a fills 3 pages of 16 in the two causal layers, 3 and 1 or 2 in the windowed ones.
  for (std::int64_t max_pages = 1; max_pages < 24; ++max_pages) {
    CacheModel model(mixed_layers(), poisoned(16, max_pages));
    const SequenceId a = model.add_sequence();
    const SequenceId b = model.add_sequence();
    int num_failed = 0;
    for (const std::int64_t n : {1, 15, 1, 16, 40, 3}) {
      for (const SequenceId id : {a, b}) {
        const KvCacheStats before = model.cache().stats();
        if (!model.play_append(id, n)) {
          ++num_failed;
          EXPECT_NE(model.error().find("pages more are needed"), std::string::npos) << model.error();
          EXPECT_NE(model.error().find(std::to_string(max_pages)), std::string::npos) << model.error();
          EXPECT_EQ(model.cache().stats().num_pages_allocated, before.num_pages_allocated);
          EXPECT_EQ(model.cache().stats().bytes_used, before.bytes_used);
        }
        model.check();
        ASSERT_FALSE(HasFatalFailure()) << "max_pages " << max_pages;
      }
    }
    EXPECT_GT(num_failed, 0) << max_pages;
    // What is left can still be used: the cache goes on where it stood.
    ASSERT_TRUE(model.play_remove(a));
    ASSERT_TRUE(model.play_truncate(b, 0));
    EXPECT_EQ(model.play_append(b, 1), max_pages >= 4);
    model.check();
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST(KvCacheTest, AppendThatFailsLeavesViewsValid) {
  CacheModel model(tiny_layer(), poisoned(16, 2));
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 30));
  const KvView before = *model.cache().view(a, 0);
  ASSERT_FALSE(model.play_append(a, 1000));
  const KvView after = *model.cache().view(a, 0);
  EXPECT_EQ(before.coords.data(), after.coords.data());
  EXPECT_EQ(before.rope_pos.data(), after.rope_pos.data());
  EXPECT_EQ(before.pages.data(), after.pages.data());
}

TEST(KvCacheTest, WriteRefusesWhatWasNotOpenedAndShapesThatDiffer) {
  CacheModel model(tiny_layer(), poisoned());
  KvCache& cache = model.cache();
  const SequenceId a = model.add_sequence();
  std::vector<float> data(100);
  const auto rows = [&](std::int64_t n, std::int64_t heads, std::int64_t dim) {
    return dense_view<const float, 3>(data.data(), {n, heads, dim});
  };
  EXPECT_FALSE(cache.write(a, 0, rows(1, 1, 2), rows(1, 1, 2)));
  ASSERT_TRUE(cache.append(a, coords_range(0, 3), {}));
  EXPECT_FALSE(cache.write(a, 1, rows(3, 1, 2), rows(3, 1, 2)));
  EXPECT_FALSE(cache.write(a + 1, 0, rows(3, 1, 2), rows(3, 1, 2)));
  const auto refused = cache.write(a, 0, rows(2, 1, 2), rows(3, 1, 2));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "KvCache::write: keys [2, 1, 2], expected [3, 1, 2]");
  EXPECT_FALSE(cache.write(a, 0, rows(3, 2, 2), rows(3, 1, 2)));
  EXPECT_FALSE(cache.write(a, 0, rows(3, 1, 2), rows(3, 1, 3)));
  for (const auto& result :
       {cache.append(a, coords_range(3, 4), {}), cache.evict(a, 0, 1), cache.shift(a, 0, 1, 2)}) {
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("layer 0 has not been written"), std::string::npos);
  }
  EXPECT_FALSE(cache.fork(a));
  EXPECT_TRUE(cache.truncate(a, 1));  // a part of the last append
  EXPECT_FALSE(cache.write(a, 0, rows(3, 1, 2), rows(3, 1, 2)));
  EXPECT_TRUE(cache.write(a, 0, rows(1, 1, 2), rows(1, 1, 2)));
  EXPECT_FALSE(cache.write(a, 0, rows(1, 1, 2), rows(1, 1, 2)));
  ASSERT_TRUE(cache.append(a, coords_range(1, 3), {}));
  EXPECT_TRUE(cache.truncate(a, 1));  // all of it: nothing waits any more
  EXPECT_TRUE(cache.fork(a));
}

TEST(KvCacheTest, RefusesWrongArgumentsByName) {
  EXPECT_FALSE(KvCache::create({}, {}));
  for (const int page_size : {0, 8, 15, 17, 272, -16})
    EXPECT_FALSE(KvCache::create(tiny_layer(), poisoned(page_size)));
  EXPECT_FALSE(KvCache::create(tiny_layer(), poisoned(16, -1)));
  auto bad = tiny_layer();
  bad[0].heads.num_kv_heads = 0;
  EXPECT_NE(KvCache::create(bad, {}).error().message.find("layer 0"), std::string::npos);
  auto stale = tiny_layer();
  stale[0].rope.pairing = RopePairing::kHalfSplit;
  stale[0].rope.rotary_dim = 2;
  stale[0].rope.length_policy = RopeLengthPolicy::kCurrentLength;
  EXPECT_FALSE(KvCache::create(stale, {}));

  CacheModel model(tiny_layer(), poisoned());
  KvCache& cache = model.cache();
  EXPECT_EQ(cache.length(3).error().message, "KvCache::length: sequence 3 is unknown");
  EXPECT_FALSE(cache.append(0, coords_range(0, 1), {}));
  EXPECT_FALSE(cache.truncate(0, 0));
  EXPECT_FALSE(cache.evict(0, 0, 0));
  EXPECT_FALSE(cache.shift(0, 0, 0, 1));
  EXPECT_FALSE(cache.fork(0));
  EXPECT_FALSE(cache.view(0, 0));
  EXPECT_FALSE(cache.remove_sequence(0));
  const SequenceId a = cache.add_sequence();
  EXPECT_FALSE(cache.view(a, 1));
  EXPECT_FALSE(cache.view(a, -1));
  EXPECT_FALSE(cache.append(a, coords_range(0, 2), std::vector<std::int64_t>{5}));
  const std::int64_t far = (std::int64_t{1} << 53) + 1;
  EXPECT_FALSE(cache.append(a, coords_range(-1, 1), {}));
  EXPECT_FALSE(cache.append(a, coords_range(std::int64_t{1} << 31, (std::int64_t{1} << 31) + 1), {}));
  EXPECT_FALSE(cache.append(a, std::vector<TokenCoord>{{.segment_start = far}}, {}));
  EXPECT_FALSE(cache.append(a, coords_range(0, 1), std::vector<std::int64_t>{-far}));
  ASSERT_TRUE(cache.remove_sequence(a));
  EXPECT_FALSE(cache.length(a));
  EXPECT_NE(cache.add_sequence(), a);
}

// Non-finite numbers flag their page and head, and the flag goes when they go.
TEST(KvCacheTest, FlagsFollowNonFiniteNumbersAlsoThoseThatRoundToInfinity) {
  for (const StorageType type : {StorageType::kF32, StorageType::kBf16}) {
    AttentionSpec spec;
    spec.heads = {2, 2, 2, 2};
    KvCacheOptions options;  // no poison: zeros
    options.page_size = 16;
    options.key_type = options.value_type = type;
    auto cache = KvCache::create({spec}, options);
    ASSERT_TRUE(cache);
    const SequenceId a = cache->add_sequence();
    std::vector<float> finite(8, 1.0F);
    std::vector<float> odd = finite;
    odd[6] = 3.4e38F;  // token 1, head 1: finite in f32, infinity in bf16
    const auto rows = [](const std::vector<float>& x) {
      return dense_view<const float, 3>(x.data(), {2, 2, 2});
    };
    ASSERT_TRUE(cache->append(a, coords_range(0, 2), {}));
    ASSERT_TRUE(cache->write(a, 0, rows(finite), rows(odd)));
    const bool overflows = type == StorageType::kBf16;
    EXPECT_FALSE(cache->view(a, 0)->page(0, 0).values_flagged);
    EXPECT_EQ(cache->view(a, 0)->page(0, 1).values_flagged, overflows);
    EXPECT_FALSE(cache->view(a, 0)->page(0, 1).keys_flagged);
    ASSERT_TRUE(cache->truncate(a, 1));
    ASSERT_TRUE(cache->append(a, coords_range(1, 3), {}));
    odd[6] = 1.0F;
    odd[1] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(cache->write(a, 0, rows(odd), rows(finite)));
    EXPECT_FALSE(cache->view(a, 0)->page(0, 1).values_flagged);  // written over
    EXPECT_TRUE(cache->view(a, 0)->page(0, 0).keys_flagged);
    EXPECT_FALSE(cache->view(a, 0)->page(0, 1).keys_flagged);
  }
}

TEST(KvCacheTest, FreePagesServeOtherSequencesAndHoldNothingOfTheirFormerOwner) {
  for (const bool poison : {true, false}) {
    KvCacheOptions options = poisoned(16, 8);
    options.poison = poison;
    CacheModel model(mixed_layers(), options);
    const SequenceId a = model.add_sequence();
    ASSERT_TRUE(model.play_append(a, 20));
    const std::int64_t bytes = model.cache().stats().bytes_allocated;
    ASSERT_TRUE(model.play_remove(a));
    EXPECT_EQ(model.cache().stats().num_pages_allocated, 0);
    EXPECT_EQ(model.cache().stats().num_pages_free, 8);
    const SequenceId b = model.add_sequence();
    ASSERT_TRUE(model.play_append(b, 20));
    EXPECT_EQ(model.cache().stats().bytes_allocated, bytes);
    model.check();
    const KvView view = *model.cache().view(b, 0);
    const float behind =
        static_cast<const float*>(view.page(1, 0).keys)[view.layout.key_offset(StorageType::kF32, 10, 0)];
    EXPECT_TRUE(poison ? std::isnan(behind) : behind == 0.0F);
  }
}

TEST(KvCacheTest, FreePagesOfAnotherShapeMakeRoomAtTheLimit) {
  std::vector<AttentionSpec> layers = tiny_layer(window(4));
  layers.push_back(layers[0]);
  layers[1].heads = {1, 1, 3, 3};
  layers[1].mask = mask_rule(MaskOp::kCausal);
  CacheModel model(layers, poisoned(16, 8));
  const SequenceId a = model.add_sequence();
  ASSERT_TRUE(model.play_append(a, 48));  // three pages each; then the window gives back, the other takes
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(model.play_append(a, 1)) << i << ": " << model.error();
    // One more than the limit at most: the page that this step gave back.
    const KvCacheStats stats = model.cache().stats();
    EXPECT_LE(stats.num_pages_allocated + stats.num_pages_free, 9) << i;
  }
  model.check();
}

}  // namespace
}  // namespace sightline
