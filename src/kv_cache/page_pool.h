// Memory of pages, their recycling and their limit. A page holds `page_size` tokens of every key head of
// one layer; who shares it is counted by shared_ptr. Not thread-safe: the cache changes structure alone.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sightline/base/aligned_buffer.h"
#include "sightline/base/error.h"
#include "sightline/kernels/page_layout.h"

namespace sightline::kv_cache {

inline constexpr int kMaxPageSize = 256;

/// What decides the bytes of a page: layers of equal shape share their free pages.
struct PageShape {
  PageLayout layout;
  StorageType key_type = StorageType::kF32;
  StorageType value_type = StorageType::kF32;
  int num_kv_heads = 0;

  /// Bytes from a head's keys to its values, and from head to head; both whole cache lines.
  [[nodiscard]] std::size_t key_bytes() const;
  [[nodiscard]] std::size_t head_bytes() const;
  [[nodiscard]] std::size_t page_bytes() const {
    return head_bytes() * static_cast<std::size_t>(num_kv_heads);
  }
  [[nodiscard]] bool operator==(const PageShape& other) const;
};

/// Slots of one head that hold, or may hold, a non-finite number: poison, or what the caller wrote.
struct HeadBits {
  std::bitset<kMaxPageSize> bad_keys;
  std::bitset<kMaxPageSize> bad_values;
};

struct Page {
  AlignedBuffer<std::byte> data;
  std::vector<HeadBits> bits;  ///< [num_kv_heads]

  [[nodiscard]] std::byte* keys(const PageShape& shape, int head) {
    return data.data() + static_cast<std::size_t>(head) * shape.head_bytes();
  }
  [[nodiscard]] std::byte* values(const PageShape& shape, int head) {
    return keys(shape, head) + shape.key_bytes();
  }
};

/// Pages wanted of one shape, and pages of it that the same step gives back.
struct PageDemand {
  int shape_idx = 0;
  std::int64_t num_wanted = 0;
  std::int64_t num_returned = 0;
};

class PagePool {
 public:
  /// `max_pages` bounds all pages that exist, in use or free; 0: no limit.
  PagePool(std::int64_t max_pages, bool poison) : max_pages_(max_pages), poison_(poison) {}

  /// Index of `shape`, which is added when it is new.
  [[nodiscard]] int shape_index(const PageShape& shape);
  [[nodiscard]] const PageShape& shape(int shape_idx) const {
    return shapes_[static_cast<std::size_t>(shape_idx)].shape;
  }

  /// Makes sure that, after the returned pages came back by recycle(), take() succeeds num_wanted times of
  /// each shape. Errors (kOutOfMemory): over the limit, or memory refused; no page in use was touched.
  [[nodiscard]] Result<void> reserve(const std::vector<PageDemand>& demands);
  /// A reserved page, every slot cleared: poison, or 0; padding lanes always 0. Never fails.
  [[nodiscard]] std::shared_ptr<Page> take(int shape_idx);
  /// Gives up one owner's share; the last one's page becomes free (and is poisoned at once).
  void recycle(int shape_idx, std::shared_ptr<Page>&& page);

  [[nodiscard]] bool poison() const { return poison_; }
  [[nodiscard]] std::int64_t num_in_use() const { return num_in_use_; }
  [[nodiscard]] std::int64_t num_free() const;
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  struct Shape {
    PageShape shape;
    std::vector<std::shared_ptr<Page>> free;
    std::int64_t num_pages = 0;  ///< in use and free
  };
  void add_free_page(Shape& shape);
  void drop_free_pages(std::int64_t num_pages, const std::vector<std::int64_t>& num_kept);

  std::vector<Shape> shapes_;
  std::int64_t max_pages_ = 0;
  bool poison_ = false;
  std::int64_t num_in_use_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace sightline::kv_cache
