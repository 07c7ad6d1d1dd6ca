// What attention sees of a cache: a read-only view of one layer of one sequence. Slot index = ordinal:
// the table of pages is indexed by ordinal / page_size, freed pages are null, evicted slots are invalid.
#pragma once

#include <cstdint>
#include <span>

#include "sightline/kernels/page_layout.h"
#include "sightline/spec/coords.h"
#include "sightline/spec/rope.h"

namespace sightline {

/// One key head's part of one page.
struct KvPage {
  const void* keys = nullptr;  ///< null: the page was freed; none of its tokens is valid
  const void* values = nullptr;
  /// Set when some written or freed slot may hold a non-finite number (also poison); attention then takes
  /// its careful path, which gives the same bits with unseen entries replaced by 0.
  bool keys_flagged = false;
  bool values_flagged = false;
};

/// Valid until the next change of its sequence; `write` changes only what its pages hold and their flags.
///
/// A page that a window freed is null while the coordinates of its tokens stay valid, because layers share
/// them: the layer's own mask shows none of them to a query at or after the least position of the last
/// append, and older queries are not the cache's to serve.
struct KvView {
  PageLayout layout;
  StorageType key_type = StorageType::kF32;
  StorageType value_type = StorageType::kF32;
  CacheStage stage = CacheStage::kAfterRotation;
  int num_kv_heads = 0;
  std::int64_t num_slots = 0;          ///< ordinals [0, num_slots); slots behind it are unwritten (poisoned)
  std::int64_t num_pages = 0;          ///< ceil(num_slots / page_size)
  std::span<const KvPage> pages;       ///< [num_pages, num_kv_heads], row-major
  std::span<const TokenCoord> coords;  ///< [num_slots]; valid = false: evicted
  std::span<const std::int64_t> rope_pos;  ///< [num_slots]; rotation of stored keys, or to apply when read

  [[nodiscard]] const KvPage& page(std::int64_t page_idx, int kv_head) const {
    return pages[static_cast<std::size_t>(page_idx * num_kv_heads + kv_head)];
  }
};

}  // namespace sightline
