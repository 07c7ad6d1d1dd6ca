// What the cache counts. Walks every token of every sequence: for reports, not for every step.
#include <bitset>

#include "kv_cache/kv_cache_impl.h"

namespace sightline {

KvCacheStats KvCache::stats() const {
  KvCacheStats stats;
  stats.num_pages_allocated = impl_->pool.num_in_use();
  stats.num_pages_free = impl_->pool.num_free();
  stats.bytes_allocated = impl_->pool.bytes();
  std::unordered_map<const Page*, std::bitset<kv_cache::kMaxPageSize>> counted;
  for (const auto& [id, sequence] : impl_->sequences) {
    stats.bytes_metadata += static_cast<std::int64_t>(sequence.coords.capacity() * sizeof(TokenCoord) +
                                                      sequence.rope_pos.capacity() * sizeof(std::int64_t));
    for (std::size_t layer = 0; layer < impl_->layers.size(); ++layer) {
      const LayerPages& pages = sequence.layers[layer];
      const PageShape& shape = impl_->shape(layer);
      stats.bytes_metadata += static_cast<std::int64_t>(pages.pages.capacity() * sizeof(pages.pages[0]) +
                                                        pages.view.capacity() * sizeof(KvPage));
      const auto token_bytes = static_cast<std::int64_t>(
          static_cast<std::size_t>(shape.num_kv_heads) *
          (static_cast<std::size_t>(shape.layout.qk_head_dim) * storage_bytes(shape.key_type) +
           static_cast<std::size_t>(shape.layout.v_head_dim) * storage_bytes(shape.value_type)));
      for (std::int64_t i = 0; i < sequence.length(); ++i) {
        const Page* page = pages.pages[static_cast<std::size_t>(i / impl_->page_size())].get();
        if (page == nullptr || !sequence.coords[static_cast<std::size_t>(i)].valid) continue;
        auto&& slot = counted[page][static_cast<std::size_t>(i % impl_->page_size())];
        if (!slot) stats.bytes_used += token_bytes;
        slot = true;
      }
    }
  }
  return stats;
}

}  // namespace sightline
