#include "kv_cache/page_pool.h"

#include <algorithm>
#include <new>

#include "kv_cache/page_slots.h"

namespace sightline::kv_cache {

namespace {
std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}
}  // namespace

std::size_t PageShape::key_bytes() const {
  return whole_lines(layout.key_size(key_type) * storage_bytes(key_type));
}

std::size_t PageShape::head_bytes() const {
  return key_bytes() + whole_lines(layout.value_size() * storage_bytes(value_type));
}

bool PageShape::operator==(const PageShape& other) const {
  return layout.page_size == other.layout.page_size && layout.qk_head_dim == other.layout.qk_head_dim &&
         layout.v_head_dim == other.layout.v_head_dim && key_type == other.key_type &&
         value_type == other.value_type && num_kv_heads == other.num_kv_heads;
}

int PagePool::shape_index(const PageShape& shape) {
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    if (shapes_[i].shape == shape) return static_cast<int>(i);
  }
  shapes_.push_back({shape, {}, 0});
  return static_cast<int>(shapes_.size() - 1);
}

std::int64_t PagePool::num_free() const {
  std::int64_t n = 0;
  for (const Shape& shape : shapes_) n += std::ssize(shape.free);
  return n;
}

void PagePool::add_free_page(Shape& shape) {
  auto page = std::make_shared<Page>();
  page->data = AlignedBuffer<std::byte>(shape.shape.page_bytes());
  page->bits.resize(static_cast<std::size_t>(shape.shape.num_kv_heads));
  // Room for every page of this shape, so that recycle() never allocates.
  const auto room = static_cast<std::size_t>(shape.num_pages + 1);
  if (shape.free.capacity() < room) shape.free.reserve(2 * room);
  if (poison_) clear_page(*page, shape.shape, true);
  shape.free.push_back(std::move(page));
  ++shape.num_pages;
  bytes_ += static_cast<std::int64_t>(shape.shape.page_bytes());
}

void PagePool::drop_free_pages(std::int64_t num_pages, const std::vector<std::int64_t>& num_kept) {
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    Shape& shape = shapes_[i];
    while (num_pages > 0 && std::ssize(shape.free) > num_kept[i]) {
      shape.free.pop_back();
      --shape.num_pages;
      --num_pages;
      bytes_ -= static_cast<std::int64_t>(shape.shape.page_bytes());
    }
  }
}

Result<void> PagePool::reserve(const std::vector<PageDemand>& demands) {
  std::vector<std::int64_t> wanted(shapes_.size(), 0);  // beyond what the same step gives back
  std::int64_t net = 0;
  for (const PageDemand& demand : demands) {
    wanted[static_cast<std::size_t>(demand.shape_idx)] += demand.num_wanted - demand.num_returned;
    net += demand.num_wanted - demand.num_returned;
  }
  if (max_pages_ > 0 && num_in_use_ + net > max_pages_) {
    return fail(ErrorKind::kOutOfMemory, "{} pages more are needed and {} of max_pages = {} are left", net,
                max_pages_ - num_in_use_, max_pages_);
  }
  std::int64_t num_new = 0;
  for (std::size_t i = 0; i < shapes_.size(); ++i) {
    wanted[i] = std::max<std::int64_t>(wanted[i], 0);
    num_new += std::max<std::int64_t>(0, wanted[i] - std::ssize(shapes_[i].free));
  }
  if (max_pages_ > 0) {
    // Free pages of shapes that need none make room for those that do. Pages that come back in this step
    // can stand above the limit until the next one.
    const std::int64_t num_existing = num_in_use_ + num_free();
    if (num_existing + num_new > max_pages_) drop_free_pages(num_existing + num_new - max_pages_, wanted);
  }
  try {
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
      while (std::ssize(shapes_[i].free) < wanted[i]) add_free_page(shapes_[i]);
    }
  } catch (const std::bad_alloc&) {
    return fail(ErrorKind::kOutOfMemory,
                "{} pages more are needed and the system refused memory ({} bytes held)", net, bytes_);
  }
  return {};
}

std::shared_ptr<Page> PagePool::take(int shape_idx) {
  Shape& shape = shapes_[static_cast<std::size_t>(shape_idx)];
  std::shared_ptr<Page> page = std::move(shape.free.back());
  shape.free.pop_back();
  ++num_in_use_;
  // Poison was filled in when the page became free; without it a former owner's numbers are still there.
  if (!poison_) clear_page(*page, shape.shape, false);
  return page;
}

void PagePool::recycle(int shape_idx, std::shared_ptr<Page>&& page) {
  if (page.use_count() > 1) {
    page.reset();
    return;
  }
  Shape& shape = shapes_[static_cast<std::size_t>(shape_idx)];
  --num_in_use_;
  if (poison_) clear_page(*page, shape.shape, true);
  shape.free.push_back(std::move(page));
}

}  // namespace sightline::kv_cache
