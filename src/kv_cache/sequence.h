// One sequence of the cache: its coordinates, and for each layer its table of pages and what of it a view
// shows. Ordinals and pages; no memory management (page_pool.h), no arithmetic (layer.h, page_slots.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kv_cache/layer.h"
#include "kv_cache/page_pool.h"
#include "sightline/kv_cache/kv_view.h"

namespace sightline::kv_cache {

struct LayerPages {
  std::vector<std::shared_ptr<Page>> pages;  ///< [num_pages]; null: freed
  std::vector<KvPage> view;                  ///< [num_pages, num_kv_heads], what attention reads
  /// Pages before it are freed, or kept for first tokens; a window frees from here on.
  std::int64_t window_cursor = 0;
  /// Greatest `pos` among tokens whose page a window freed.
  std::optional<std::int64_t> max_freed_pos;
  bool written = true;  ///< the last append has been written

  [[nodiscard]] std::int64_t num_pages() const { return std::ssize(pages); }
  /// Whether this sequence may write to the page: nobody shares it.
  [[nodiscard]] bool owns(std::int64_t page_idx) const {
    return pages[static_cast<std::size_t>(page_idx)].use_count() == 1;
  }
  /// Copies addresses and flags of one page into the view.
  void refresh(const PageShape& shape, std::int64_t page_idx);
};

struct Sequence {
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos;
  std::vector<LayerPages> layers;
  /// Ordinals [pending_begin, length) wait for write() in the layers that are not `written`.
  std::int64_t pending_begin = 0;
  /// Where each pending token stands in the rows that write() takes, which hold padding too.
  std::vector<std::int64_t> pending_rows;
  std::int64_t num_pending_rows = 0;
  /// Rows of cos and sin of the pending tokens, one entry a Rotation of the cache.
  std::vector<std::vector<float>> pending_rotation;

  [[nodiscard]] std::int64_t length() const { return std::ssize(coords); }
  /// The first layer that the last append has not been written to, or -1.
  [[nodiscard]] int first_unwritten_layer() const;
  /// Ordinals of a page that exist: [begin, end).
  [[nodiscard]] std::int64_t page_end(std::int64_t page_idx, int page_size) const;
  /// Whether a page holds a valid token below ordinal `end`.
  [[nodiscard]] bool page_has_valid(std::int64_t page_idx, int page_size, std::int64_t end) const;
};

/// Greatest `pos` of the valid tokens of `coords`.
[[nodiscard]] std::optional<std::int64_t> max_pos(std::span<const TokenCoord> coords);
/// Least `pos` of the valid tokens of `coords`.
[[nodiscard]] std::optional<std::int64_t> min_pos(std::span<const TokenCoord> coords);

/// Pages of a windowed layer that no query at `query_pos` or later sees, all of whose ordinals lie below
/// `end`: every token is evicted, or behind the window and not a kept first one. Also gives where
/// the cursor stands afterwards. Positions rise, so the first page that is still seen ends the search.
struct WindowRelease {
  std::vector<std::int64_t> pages;
  std::optional<std::int64_t> max_pos;  ///< of the valid tokens on them
  std::int64_t cursor = 0;
};
[[nodiscard]] WindowRelease find_window_release(const Sequence& sequence, const LayerPages& layer,
                                                const ReachBack& reach, int page_size, std::int64_t query_pos,
                                                std::int64_t end);

/// Recomputes max_freed_pos after coordinates changed: a page without memory that holds valid tokens was
/// freed by the window. `coords` may be a changed copy of the sequence's.
[[nodiscard]] std::optional<std::int64_t> find_max_freed_pos(const LayerPages& layer,
                                                             std::span<const TokenCoord> coords,
                                                             int page_size);

}  // namespace sightline::kv_cache
