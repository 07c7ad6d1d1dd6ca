// Operations on what is stored already: truncate, evict, shift, fork. Each checks everything and reserves
// what it needs before it changes the cache.
#include "kv_cache/kv_cache_impl.h"

namespace sightline {

Result<void> KvCache::truncate(SequenceId sequence, std::int64_t num_tokens) {
  Impl& cache = *impl_;
  SIGHTLINE_TRY(Sequence* const state, Impl::find(cache, "truncate", sequence));
  if (num_tokens < 0 || num_tokens > state->length()) {
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::truncate: num_tokens = {}, expected 0 to the length, {}", num_tokens,
                state->length());
  }
  const std::int64_t old_length = state->length();
  if (num_tokens == old_length) {
    // An append of padding alone opened nothing, and still waits for its rows.
    if (num_tokens <= state->pending_begin) {
      for (LayerPages& pages : state->layers) pages.written = true;
    }
    return {};
  }
  const int page_size = cache.options.page_size;
  const std::span<const TokenCoord> kept =
      std::span(state->coords).first(static_cast<std::size_t>(num_tokens));
  auto query_pos = kv_cache::max_pos(kept);
  if (query_pos) ++*query_pos;  // the next token, at the earliest
  // Taking back an append never fails: what it let a window free stays freed, and `append` says so.
  if (num_tokens == state->pending_begin && state->first_unwritten_layer() >= 0) query_pos.reset();
  std::vector<std::optional<std::int64_t>> max_freed;
  for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
    const LayerPages& pages = state->layers[layer];
    max_freed.push_back(kv_cache::find_max_freed_pos(pages, kept, page_size));
    SIGHTLINE_CHECK(cache.check_freed("truncate", layer, max_freed.back(), query_pos));
    const std::int64_t cut = num_tokens / page_size;
    if (num_tokens % page_size != 0 && pages.pages[static_cast<std::size_t>(cut)] == nullptr &&
        state->page_has_valid(cut, page_size, num_tokens)) {
      return fail(ErrorKind::kInvalidArgument,
                  "KvCache::truncate: num_tokens = {} cuts a page that layer {} has freed (window {})",
                  num_tokens, layer, cache.layers[layer].reach.window);
    }
  }

  const std::int64_t num_pages = (num_tokens + page_size - 1) / page_size;
  for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
    LayerPages& pages = state->layers[layer];
    for (std::int64_t page_idx = num_pages; page_idx < pages.num_pages(); ++page_idx) {
      if (pages.pages[static_cast<std::size_t>(page_idx)] != nullptr)
        cache.free_page(*state, layer, page_idx);
    }
    if (num_tokens % page_size != 0) {
      cache.clear_given_up(*state, layer, num_tokens, std::min(old_length, num_pages * page_size));
    }
    pages.pages.resize(static_cast<std::size_t>(num_pages));
    pages.view.resize(static_cast<std::size_t>(num_pages) *
                      static_cast<std::size_t>(cache.shape(layer).num_kv_heads));
    pages.window_cursor = std::min(pages.window_cursor, num_tokens / page_size);
    pages.max_freed_pos = max_freed[layer];
    if (num_tokens <= state->pending_begin) pages.written = true;
  }
  if (num_tokens > state->pending_begin) {
    state->pending_rows.resize(static_cast<std::size_t>(num_tokens - state->pending_begin));
    state->num_pending_rows = state->pending_rows.back() + 1;
  }
  state->coords.resize(static_cast<std::size_t>(num_tokens));
  state->rope_pos.resize(static_cast<std::size_t>(num_tokens));
  return {};
}

Result<void> KvCache::evict(SequenceId sequence, std::int64_t begin, std::int64_t end) {
  Impl& cache = *impl_;
  SIGHTLINE_TRY(Sequence* const state, Impl::find(cache, "evict", sequence));
  SIGHTLINE_CHECK(Impl::check_written("evict", *state));
  SIGHTLINE_CHECK(Impl::check_range("evict", *state, begin, end));
  if (begin == end) return {};
  const int page_size = cache.options.page_size;
  for (std::int64_t i = begin; i < end; ++i) state->coords[static_cast<std::size_t>(i)].valid = false;
  for (std::int64_t page_idx = begin / page_size; page_idx * page_size < end; ++page_idx) {
    const std::int64_t first = page_idx * page_size;
    // An open page stays, for the tokens to come.
    const bool is_empty =
        first + page_size <= state->length() && !state->page_has_valid(page_idx, page_size, state->length());
    for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
      if (state->layers[layer].pages[static_cast<std::size_t>(page_idx)] == nullptr) continue;
      if (is_empty) {
        cache.free_page(*state, layer, page_idx);
      } else {
        cache.clear_given_up(*state, layer, std::max(begin, first), std::min(end, first + page_size));
      }
    }
  }
  for (LayerPages& pages : state->layers) {
    pages.max_freed_pos = kv_cache::find_max_freed_pos(pages, state->coords, page_size);
  }
  return {};
}

std::vector<std::int64_t> KvCache::Impl::find_copies(const Sequence& sequence, std::size_t layer,
                                                     std::int64_t begin, std::int64_t end) const {
  std::vector<std::int64_t> copies;
  const LayerPages& pages = sequence.layers[layer];
  for (std::int64_t page_idx = begin / page_size(); page_idx * page_size() < end; ++page_idx) {
    const bool is_stored = pages.pages[static_cast<std::size_t>(page_idx)] != nullptr;
    if (is_stored && !pages.owns(page_idx)) copies.push_back(page_idx);
  }
  return copies;
}

void KvCache::Impl::rotate_again(Sequence& sequence, std::size_t layer, std::int64_t begin, std::int64_t end,
                                 const kv_cache::ReRotation& rotation) {
  LayerPages& pages = sequence.layers[layer];
  std::vector<float> key(static_cast<std::size_t>(shape(layer).layout.qk_head_dim));
  for (std::int64_t i = begin; i < end; ++i) {
    Page* page = pages.pages[static_cast<std::size_t>(i / page_size())].get();
    if (page == nullptr || !sequence.coords[static_cast<std::size_t>(i)].valid) continue;
    const int slot = static_cast<int>(i % page_size());
    for (int head = 0; head < shape(layer).num_kv_heads; ++head) {
      kv_cache::read_key(*page, shape(layer), head, slot, key);
      rotation.apply(key);
      kv_cache::write_key(*page, shape(layer), head, slot, key);
    }
  }
}

Result<void> KvCache::shift(SequenceId sequence, std::int64_t begin, std::int64_t end, std::int64_t delta) {
  Impl& cache = *impl_;
  SIGHTLINE_TRY(Sequence* const state, Impl::find(cache, "shift", sequence));
  SIGHTLINE_CHECK(Impl::check_written("shift", *state));
  SIGHTLINE_CHECK(Impl::check_range("shift", *state, begin, end));
  if (begin == end || delta == 0) return {};
  if (!is_coordinate(delta)) {
    return fail(ErrorKind::kInvalidArgument, "KvCache::shift: delta = {} is beyond 2^53", delta);
  }
  std::vector<TokenCoord> moved = state->coords;
  std::vector<std::int64_t> moved_rope = state->rope_pos;
  for (std::int64_t i = begin; i < end; ++i) {
    TokenCoord& coord = moved[static_cast<std::size_t>(i)];
    std::int64_t& rope_pos = moved_rope[static_cast<std::size_t>(i)];
    if (!coord.valid) continue;  // an evicted token has no position to move
    coord.pos += delta;
    coord.segment_start += delta;
    rope_pos += delta;
    if (!Impl::is_pos(coord.pos) || !is_coordinate(coord.segment_start) || !is_coordinate(rope_pos)) {
      return fail(ErrorKind::kInvalidArgument,
                  "KvCache::shift: delta = {} moves ordinal {} to pos {}, expected 0 to {}", delta, i,
                  coord.pos, kMaxPos);
    }
  }
  auto query_pos = kv_cache::max_pos(moved);
  if (query_pos) ++*query_pos;
  std::vector<std::optional<std::int64_t>> max_freed;
  std::vector<std::vector<std::int64_t>> copies(cache.layers.size());
  std::vector<PageDemand> demands;
  for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
    max_freed.push_back(kv_cache::find_max_freed_pos(state->layers[layer], moved, cache.options.page_size));
    SIGHTLINE_CHECK(cache.check_freed("shift", layer, max_freed.back(), query_pos));
    if (cache.layers[layer].rotation_idx < 0) continue;
    copies[layer] = cache.find_copies(*state, layer, begin, end);
    demands.push_back({cache.layers[layer].shape_idx, std::ssize(copies[layer]), 0});
  }
  std::vector<kv_cache::ReRotation> rotations;
  for (const Rotation& rotation : cache.rotations) rotations.emplace_back(rotation, delta);
  if (auto reserved = cache.pool.reserve(demands); !reserved) {
    return fail(reserved.error().kind, "KvCache::shift: {}", reserved.error().message);
  }

  for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
    LayerPages& pages = state->layers[layer];
    for (const std::int64_t page_idx : copies[layer]) cache.own_page(*state, layer, page_idx);
    pages.max_freed_pos = max_freed[layer];
    const int rotation_idx = cache.layers[layer].rotation_idx;
    if (rotation_idx < 0) continue;
    cache.rotate_again(*state, layer, begin, end, rotations[static_cast<std::size_t>(rotation_idx)]);
    for (std::int64_t page_idx = begin / cache.page_size(); page_idx * cache.page_size() < end; ++page_idx) {
      pages.refresh(cache.shape(layer), page_idx);
    }
  }
  state->coords = std::move(moved);
  state->rope_pos = std::move(moved_rope);
  return {};
}

Result<SequenceId> KvCache::fork(SequenceId sequence) {
  SIGHTLINE_TRY(Sequence* const state, Impl::find(*impl_, "fork", sequence));
  SIGHTLINE_CHECK(Impl::check_written("fork", *state));
  Sequence copy = *state;
  impl_->sequences.emplace(impl_->next_id, std::move(copy));
  return impl_->next_id++;
}

}  // namespace sightline
