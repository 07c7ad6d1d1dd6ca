#include "kv_cache/kv_cache_impl.h"

namespace sightline {

Result<void> KvCache::Impl::check_written(const char* function, const Sequence& sequence) {
  const int layer = sequence.first_unwritten_layer();
  if (layer < 0) return {};
  return fail(ErrorKind::kInvalidArgument,
              "KvCache::{}: layer {} has not been written since the last append (ordinals from {} on)",
              function, layer, sequence.pending_begin);
}

Result<void> KvCache::Impl::check_range(const char* function, const Sequence& sequence, std::int64_t begin,
                                        std::int64_t end) {
  if (0 <= begin && begin <= end && end <= sequence.length()) return {};
  return fail(ErrorKind::kInvalidArgument,
              "KvCache::{}: ordinals [{}, {}) are no range of the {} tokens of the sequence", function, begin,
              end, sequence.length());
}

Result<void> KvCache::Impl::check_freed(const char* function, std::size_t layer,
                                        std::optional<std::int64_t> max_freed_pos,
                                        std::optional<std::int64_t> query_pos) const {
  const ReachBack& reach = layers[layer].reach;
  if (!max_freed_pos || !query_pos || *query_pos - *max_freed_pos >= reach.window) return {};
  return fail(ErrorKind::kInvalidArgument,
              "KvCache::{}: layer {} has freed position {}, which a query at position {} sees (window {})",
              function, layer, *max_freed_pos, *query_pos, reach.window);
}

void KvCache::Impl::free_page(Sequence& sequence, std::size_t layer, std::int64_t page_idx) {
  LayerPages& pages = sequence.layers[layer];
  pool.recycle(layers[layer].shape_idx, std::move(pages.pages[static_cast<std::size_t>(page_idx)]));
  pages.refresh(shape(layer), page_idx);
}

void KvCache::Impl::own_page(Sequence& sequence, std::size_t layer, std::int64_t page_idx) {
  LayerPages& pages = sequence.layers[layer];
  std::shared_ptr<Page>& page = pages.pages[static_cast<std::size_t>(page_idx)];
  std::shared_ptr<Page> own = pool.take(layers[layer].shape_idx);
  if (page != nullptr) {
    copy_page(*page, *own);
    const std::int64_t begin = page_idx * page_size();
    for (std::int64_t i = begin; i < begin + page_size(); ++i) {
      if (i < sequence.length() && sequence.coords[static_cast<std::size_t>(i)].valid) continue;
      const int slot = static_cast<int>(i - begin);
      clear_slots(*own, shape(layer), slot, slot + 1, options.poison);
    }
    pool.recycle(layers[layer].shape_idx, std::move(page));
  }
  page = std::move(own);
  pages.refresh(shape(layer), page_idx);
}

void KvCache::Impl::clear_given_up(Sequence& sequence, std::size_t layer, std::int64_t begin,
                                   std::int64_t end) {
  const std::int64_t page_idx = begin / page_size();
  LayerPages& pages = sequence.layers[layer];
  Page* page = pages.pages[static_cast<std::size_t>(page_idx)].get();
  if (!options.poison || page == nullptr || !pages.owns(page_idx)) return;
  const std::int64_t first = page_idx * page_size();
  clear_slots(*page, shape(layer), static_cast<int>(begin - first), static_cast<int>(end - first), true);
  pages.refresh(shape(layer), page_idx);
}

}  // namespace sightline
