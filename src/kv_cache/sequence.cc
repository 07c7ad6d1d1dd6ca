#include "kv_cache/sequence.h"

#include <algorithm>

namespace sightline::kv_cache {

void LayerPages::refresh(const PageShape& shape, std::int64_t page_idx) {
  Page* page = pages[static_cast<std::size_t>(page_idx)].get();
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    KvPage& entry = view[static_cast<std::size_t>(page_idx * shape.num_kv_heads + head)];
    if (page == nullptr) {
      entry = {};
      continue;
    }
    const HeadBits& bits = page->bits[static_cast<std::size_t>(head)];
    entry = {page->keys(shape, head), page->values(shape, head), bits.bad_keys.any(), bits.bad_values.any()};
  }
}

int Sequence::first_unwritten_layer() const {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!layers[i].written) return static_cast<int>(i);
  }
  return -1;
}

std::int64_t Sequence::page_end(std::int64_t page_idx, int page_size) const {
  return std::min(length(), (page_idx + 1) * page_size);
}

bool Sequence::page_has_valid(std::int64_t page_idx, int page_size, std::int64_t end) const {
  const std::int64_t last = std::min(end, page_end(page_idx, page_size));
  for (std::int64_t i = page_idx * page_size; i < last; ++i) {
    if (coords[static_cast<std::size_t>(i)].valid) return true;
  }
  return false;
}

std::optional<std::int64_t> max_pos(std::span<const TokenCoord> coords) {
  std::optional<std::int64_t> out;
  for (const TokenCoord& coord : coords) {
    if (coord.valid && (!out || coord.pos > *out)) out = coord.pos;
  }
  return out;
}

std::optional<std::int64_t> min_pos(std::span<const TokenCoord> coords) {
  std::optional<std::int64_t> out;
  for (const TokenCoord& coord : coords) {
    if (coord.valid && (!out || coord.pos < *out)) out = coord.pos;
  }
  return out;
}

WindowRelease find_window_release(const Sequence& sequence, const LayerPages& layer, const ReachBack& reach,
                                  int page_size, std::int64_t query_pos, std::int64_t end) {
  WindowRelease release{{}, {}, layer.window_cursor};
  for (; (release.cursor + 1) * page_size <= end; ++release.cursor) {
    bool keeps_first = false;
    for (std::int64_t i = release.cursor * page_size; i < (release.cursor + 1) * page_size; ++i) {
      const TokenCoord& k = sequence.coords[static_cast<std::size_t>(i)];
      if (!k.valid) continue;
      if (k.pos - k.segment_start < reach.num_first) {
        keeps_first = true;
      } else if (query_pos - k.pos < reach.window) {
        return release;
      }
    }
    if (!keeps_first && layer.pages[static_cast<std::size_t>(release.cursor)] != nullptr) {
      release.pages.push_back(release.cursor);
      const auto begin = static_cast<std::size_t>(release.cursor * page_size);
      release.max_pos =
          std::max(release.max_pos,
                   max_pos(std::span(sequence.coords).subspan(begin, static_cast<std::size_t>(page_size))));
    }
  }
  return release;
}

std::optional<std::int64_t> find_max_freed_pos(const LayerPages& layer, std::span<const TokenCoord> coords,
                                               int page_size) {
  std::optional<std::int64_t> out;
  for (std::int64_t page_idx = 0; page_idx < layer.num_pages(); ++page_idx) {
    const std::int64_t begin = page_idx * page_size;
    if (layer.pages[static_cast<std::size_t>(page_idx)] != nullptr || begin >= std::ssize(coords)) continue;
    const std::int64_t size = std::min<std::int64_t>(page_size, std::ssize(coords) - begin);
    const auto page_max =
        max_pos(coords.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)));
    out = std::max(out, page_max);  // no value is the least
  }
  return out;
}

}  // namespace sightline::kv_cache
