// Writes of different layers and sequences at once. What it proves, it proves under ThreadSanitizer.
#include <gtest/gtest.h>

#include <vector>

#include "kv_cache/cache_model.h"
#include "sightline/base/thread_pool.h"

namespace sightline {
namespace {

TEST(KvCacheThreadsTest, LayersAndSequencesMayBeWrittenAndViewedAtOnce) {
  const std::vector<AttentionSpec> layers = test::mixed_layers();
  auto cache = KvCache::create(layers, {.page_size = 16, .poison = true});
  ASSERT_TRUE(cache);
  std::vector<SequenceId> ids = {cache->add_sequence(), cache->add_sequence()};
  ThreadPool pool(4);
  const std::vector<float> numbers(10 * 3 * 20, 0.5F);
  for (int step = 0; step < 12; ++step) {
    if (step == 5) ids.push_back(*cache->fork(ids[0]));  // shares pages with the first
    for (const SequenceId id : ids) {
      const std::int64_t length = *cache->length(id);
      ASSERT_TRUE(cache->append(id, coords_range(length, length + 7), {}));
    }
    const std::int64_t num_layers = std::ssize(layers);
    std::vector<int> is_good(static_cast<std::size_t>(num_layers) * ids.size(), 0);
    pool.parallel_for(std::ssize(is_good), [&](std::int64_t item, int) {
      const int layer = static_cast<int>(item % num_layers);
      const SequenceId id = ids[static_cast<std::size_t>(item / num_layers)];
      const HeadSpec& heads = layers[static_cast<std::size_t>(layer)].heads;
      const bool written =
          cache
              ->write(id, layer,
                      dense_view<const float, 3>(numbers.data(), {7, heads.num_kv_heads, heads.qk_head_dim}),
                      dense_view<const float, 3>(numbers.data(), {7, heads.num_kv_heads, heads.v_head_dim}))
              .has_value();
      const auto view = cache->view(id, layer);
      const bool is_stored = view && view->page(view->num_pages - 1, 0).keys != nullptr;
      is_good[static_cast<std::size_t>(item)] = written && is_stored && *cache->length(id) == view->num_slots;
    });
    for (const int good : is_good) EXPECT_EQ(good, 1);
  }
}

}  // namespace
}  // namespace sightline
