// The public operations: each checks everything, reserves what it needs, and only then changes the cache.
#include "sightline/kv_cache/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "kv_cache/layer.h"
#include "kv_cache/page_pool.h"
#include "kv_cache/page_slots.h"
#include "kv_cache/sequence.h"
#include "sightline/base/checked.h"

namespace sightline {

using kv_cache::HeadBits;
using kv_cache::Layer;
using kv_cache::LayerPages;
using kv_cache::Page;
using kv_cache::PageDemand;
using kv_cache::PagePool;
using kv_cache::PageShape;
using kv_cache::Rotation;
using kv_cache::Sequence;

namespace {
// Positions stay exact as doubles, and their differences never overflow.
constexpr std::int64_t kMaxPos = std::int64_t{1} << 53;

bool in_range(std::int64_t pos) { return -kMaxPos <= pos && pos <= kMaxPos; }
}  // namespace

struct KvCache::Impl {
  std::vector<Layer> layers;
  std::vector<Rotation> rotations;
  KvCacheOptions options;
  PagePool pool;
  std::unordered_map<SequenceId, Sequence> sequences;
  SequenceId next_id = 0;

  explicit Impl(const KvCacheOptions& o) : options(o), pool(o.max_pages, o.poison) {}

  [[nodiscard]] const PageShape& shape(std::size_t layer) const {
    return pool.shape(layers[layer].shape_idx);
  }
  [[nodiscard]] std::int64_t page_size() const { return options.page_size; }

  template <typename Self>
  static auto find(Self& self, const char* function, SequenceId id)
      -> Result<decltype(&self.sequences.begin()->second)> {
    const auto it = self.sequences.find(id);
    if (it == self.sequences.end()) {
      return fail(ErrorKind::kInvalidArgument, "KvCache::{}: sequence {} is unknown", function, id);
    }
    return &it->second;
  }

  static Result<void> check_written(const char* function, const Sequence& sequence) {
    const int layer = sequence.first_unwritten_layer();
    if (layer < 0) return {};
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::{}: layer {} has not been written since the last append (ordinals from {} on)",
                function, layer, sequence.pending_begin);
  }

  static Result<void> check_range(const char* function, const Sequence& sequence, std::int64_t begin,
                                  std::int64_t end) {
    if (0 <= begin && begin <= end && end <= sequence.length()) return {};
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::{}: ordinals [{}, {}) are no range of the {} tokens of the sequence", function,
                begin, end, sequence.length());
  }

  // Queries at `query_pos` or later must not see a token whose page a window freed.
  Result<void> check_freed(const char* function, std::size_t layer, std::optional<std::int64_t> max_freed_pos,
                           std::optional<std::int64_t> query_pos) const {
    const ReachBack& reach = layers[layer].reach;
    if (!max_freed_pos || !query_pos || *query_pos - *max_freed_pos >= reach.window) return {};
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::{}: layer {} has freed position {}, which a query at position {} sees (window {})",
                function, layer, *max_freed_pos, *query_pos, reach.window);
  }

  void free_page(Sequence& sequence, std::size_t layer, std::int64_t page_idx) {
    LayerPages& pages = sequence.layers[layer];
    pool.recycle(layers[layer].shape_idx, std::move(pages.pages[static_cast<std::size_t>(page_idx)]));
    pages.pages[static_cast<std::size_t>(page_idx)] = nullptr;
    pages.refresh(shape(layer), page_idx);
  }

  // Gives the sequence its own page: a copy of the shared one, or a new one where there is none. Slots that
  // do not exist or hold no token are cleared. The page has been reserved.
  void own_page(Sequence& sequence, std::size_t layer, std::int64_t page_idx) {
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

  // Poisons slots that a sequence gave up in a page that stays; a shared one is left to its other owners.
  void clear_given_up(Sequence& sequence, std::size_t layer, std::int64_t begin, std::int64_t end) {
    const std::int64_t page_idx = begin / page_size();
    LayerPages& pages = sequence.layers[layer];
    Page* page = pages.pages[static_cast<std::size_t>(page_idx)].get();
    if (!options.poison || page == nullptr || !pages.owns(page_idx)) return;
    const std::int64_t first = page_idx * page_size();
    clear_slots(*page, shape(layer), static_cast<int>(begin - first), static_cast<int>(end - first), true);
    pages.refresh(shape(layer), page_idx);
  }

  std::vector<std::int64_t> find_copies(const Sequence& sequence, std::size_t layer, std::int64_t begin,
                                        std::int64_t end) const;
  void rotate_again(Sequence& sequence, std::size_t layer, std::int64_t begin, std::int64_t end,
                    const kv_cache::ReRotation& rotation);
};

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;
KvCache::~KvCache() = default;

Result<KvCache> KvCache::create(std::vector<AttentionSpec> layers, KvCacheOptions options) {
  if (layers.empty()) return fail(ErrorKind::kInvalidArgument, "KvCache::create: no layer");
  if (options.page_size < 16 || options.page_size > kv_cache::kMaxPageSize ||
      options.page_size % kPageLanes != 0) {
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::create: page_size = {}, expected a multiple of {} from 16 to {}", options.page_size,
                kPageLanes, kv_cache::kMaxPageSize);
  }
  if (options.max_pages < 0 || options.rope_length < 0) {
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::create: max_pages = {}, rope_length = {}, expected >= 0", options.max_pages,
                options.rope_length);
  }
  auto impl = std::make_unique<Impl>(options);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const AttentionSpec& spec = layers[i];
    if (auto valid = validate(spec); !valid) {
      return fail(ErrorKind::kInvalidArgument, "KvCache::create: layer {}: {}", i, valid.error().message);
    }
    const bool rotates = spec.rope.pairing != RopePairing::kNone;
    if (rotates && spec.rope.length_policy == RopeLengthPolicy::kCurrentLength) {
      return fail(ErrorKind::kInvalidArgument,
                  "KvCache::create: layer {}: rope by current length would leave stored keys at stale angles",
                  i);
    }
    Layer layer;
    layer.spec = spec;
    layer.reach = reach_back(spec.mask);
    layer.shape_idx =
        impl->pool.shape_index({{options.page_size, spec.heads.qk_head_dim, spec.heads.v_head_dim},
                                options.key_type,
                                options.value_type,
                                spec.heads.num_kv_heads});
    if (rotates && spec.rope.cache_stage == CacheStage::kAfterRotation) {
      const auto same = std::find_if(impl->rotations.begin(), impl->rotations.end(),
                                     [&](const Rotation& rotation) { return rotation.rope == spec.rope; });
      layer.rotation_idx = static_cast<int>(same - impl->rotations.begin());
      if (same == impl->rotations.end()) {
        impl->rotations.push_back(kv_cache::make_rotation(spec.rope, options.rope_length));
      }
    }
    impl->layers.push_back(std::move(layer));
  }
  return KvCache(std::move(impl));
}

SequenceId KvCache::add_sequence() {
  Sequence sequence;
  sequence.layers.resize(impl_->layers.size());
  impl_->sequences.emplace(impl_->next_id, std::move(sequence));
  return impl_->next_id++;
}

Result<void> KvCache::remove_sequence(SequenceId sequence) {
  SIGHTLINE_TRY(Sequence* const state, Impl::find(*impl_, "remove_sequence", sequence));
  for (std::size_t layer = 0; layer < impl_->layers.size(); ++layer) {
    for (std::int64_t page_idx = 0; page_idx < state->layers[layer].num_pages(); ++page_idx) {
      if (state->layers[layer].pages[static_cast<std::size_t>(page_idx)] != nullptr) {
        impl_->free_page(*state, layer, page_idx);
      }
    }
  }
  impl_->sequences.erase(sequence);
  return {};
}

Result<void> KvCache::append(SequenceId sequence, std::span<const TokenCoord> coords,
                             std::span<const std::int64_t> rope_pos) {
  Impl& cache = *impl_;
  SIGHTLINE_TRY(Sequence* const state, Impl::find(cache, "append", sequence));
  SIGHTLINE_CHECK(Impl::check_written("append", *state));
  if (!rope_pos.empty() && rope_pos.size() != coords.size()) {
    return fail(ErrorKind::kInvalidArgument, "KvCache::append: {} coords and {} entries of rope_pos",
                coords.size(), rope_pos.size());
  }
  std::vector<std::int64_t> positions(rope_pos.begin(), rope_pos.end());
  for (std::size_t i = 0; i < coords.size(); ++i) {
    if (rope_pos.empty()) positions.push_back(coords[i].valid ? coords[i].pos : 0);
    if ((coords[i].valid && (!in_range(coords[i].pos) || !in_range(coords[i].segment_start))) ||
        !in_range(positions[i])) {
      return fail(ErrorKind::kInvalidArgument, "KvCache::append: position {} of token {} is beyond 2^53",
                  coords[i].pos, i);
    }
  }
  if (coords.empty()) return {};

  // Plan, changing nothing: what windows give up, and which pages must be there.
  const std::int64_t begin = state->length();
  const std::int64_t end = begin + std::ssize(coords);
  const std::int64_t first_page = begin / cache.page_size();
  const std::int64_t end_page = (end - 1) / cache.page_size() + 1;
  const auto query_pos = kv_cache::min_pos(coords);
  std::vector<kv_cache::WindowRelease> releases(cache.layers.size());
  std::vector<PageDemand> demands;
  for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
    LayerPages& pages = state->layers[layer];
    SIGHTLINE_CHECK(cache.check_freed("append", layer, pages.max_freed_pos, query_pos));
    PageDemand demand{cache.layers[layer].shape_idx, end_page - first_page, 0};
    if (first_page < pages.num_pages() && pages.owns(first_page)) --demand.num_wanted;
    if (cache.layers[layer].reach.bounded && query_pos) {
      releases[layer] = kv_cache::find_window_release(*state, pages, cache.layers[layer].reach,
                                                      cache.options.page_size, *query_pos, begin);
      for (const std::int64_t page_idx : releases[layer].pages) {
        if (pages.owns(page_idx)) ++demand.num_returned;
      }
    } else {
      releases[layer].cursor = pages.window_cursor;
    }
    demands.push_back(demand);
    pages.pages.reserve(static_cast<std::size_t>(end_page));
    pages.view.reserve(static_cast<std::size_t>(end_page) *
                       static_cast<std::size_t>(cache.shape(layer).num_kv_heads));
  }
  std::vector<std::vector<float>> rotation_rows;
  for (const Rotation& rotation : cache.rotations) {
    rotation_rows.push_back(kv_cache::rotation_rows(rotation, positions));
  }
  // Grown by doubling: exact growth would copy all coordinates for every token of a decode.
  const auto room = static_cast<std::size_t>(end);
  if (state->coords.capacity() < room) state->coords.reserve(std::max(room, 2 * state->coords.capacity()));
  if (state->rope_pos.capacity() < room)
    state->rope_pos.reserve(std::max(room, 2 * state->rope_pos.capacity()));
  if (auto reserved = cache.pool.reserve(demands); !reserved) {
    return fail(reserved.error().kind, "KvCache::append: {} tokens to sequence {}: {}", coords.size(),
                sequence, reserved.error().message);
  }

  // Change: nothing below allocates or fails.
  for (std::size_t layer = 0; layer < cache.layers.size(); ++layer) {
    LayerPages& pages = state->layers[layer];
    for (const std::int64_t page_idx : releases[layer].pages) cache.free_page(*state, layer, page_idx);
    pages.max_freed_pos = std::max(pages.max_freed_pos, releases[layer].max_pos);
    pages.window_cursor = releases[layer].cursor;
    pages.pages.resize(static_cast<std::size_t>(end_page));
    pages.view.resize(static_cast<std::size_t>(end_page) *
                      static_cast<std::size_t>(cache.shape(layer).num_kv_heads));
    for (std::int64_t page_idx = first_page; page_idx < end_page; ++page_idx) {
      if (!pages.owns(page_idx)) cache.own_page(*state, layer, page_idx);
    }
    pages.written = false;
  }
  state->coords.insert(state->coords.end(), coords.begin(), coords.end());
  state->rope_pos.insert(state->rope_pos.end(), positions.begin(), positions.end());
  state->pending_begin = begin;
  state->pending_rotation = std::move(rotation_rows);
  return {};
}

Result<void> KvCache::write(SequenceId sequence, int layer, StridedView<const float, 3> keys,
                            StridedView<const float, 3> values) {
  SIGHTLINE_TRY(Sequence* const state, Impl::find(*impl_, "write", sequence));
  if (layer < 0 || layer >= num_layers()) {
    return fail(ErrorKind::kInvalidArgument, "KvCache::write: layer = {}, expected below {}", layer,
                num_layers());
  }
  const auto at = static_cast<std::size_t>(layer);
  LayerPages& pages = state->layers[at];
  const HeadSpec& heads = impl_->layers[at].spec.heads;
  if (pages.written) {
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::write: layer {} of sequence {} has been written; append first", layer, sequence);
  }
  const std::int64_t num_tokens = state->length() - state->pending_begin;
  const auto check = [&](const char* name, const StridedView<const float, 3>& array,
                         int dim) -> Result<void> {
    if (array.shape[0] == num_tokens && array.shape[1] == heads.num_kv_heads && array.shape[2] == dim)
      return {};
    return fail(ErrorKind::kInvalidArgument, "KvCache::write: {} [{}, {}, {}], expected [{}, {}, {}]", name,
                array.shape[0], array.shape[1], array.shape[2], num_tokens, heads.num_kv_heads, dim);
  };
  SIGHTLINE_CHECK(check("keys", keys, heads.qk_head_dim));
  SIGHTLINE_CHECK(check("values", values, heads.v_head_dim));

  const PageShape& shape = impl_->shape(at);
  const int rotation_idx = impl_->layers[at].rotation_idx;
  std::vector<float> key(static_cast<std::size_t>(heads.qk_head_dim));
  std::vector<float> value(static_cast<std::size_t>(heads.v_head_dim));
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    const std::int64_t ordinal = state->pending_begin + i;
    const std::int64_t page_idx = ordinal / impl_->page_size();
    Page& page = *pages.pages[static_cast<std::size_t>(page_idx)];
    for (int head = 0; head < heads.num_kv_heads; ++head) {
      for (std::size_t dim = 0; dim < key.size(); ++dim) key[dim] = keys(i, head, dim);
      for (std::size_t dim = 0; dim < value.size(); ++dim) value[dim] = values(i, head, dim);
      if (rotation_idx >= 0) {
        const Rotation& rotation = impl_->rotations[static_cast<std::size_t>(rotation_idx)];
        const float* cos = state->pending_rotation[static_cast<std::size_t>(rotation_idx)].data() +
                           i * 2 * rotation.pairs.num_pairs;
        kernels::rotate_head(rotation.pairs, cos, cos + rotation.pairs.num_pairs, key.data(), 1, key.data(),
                             1);
      }
      kv_cache::write_slot(page, shape, head, static_cast<int>(ordinal - page_idx * impl_->page_size()), key,
                           value);
    }
  }
  const std::int64_t first_page = state->pending_begin / impl_->page_size();
  for (std::int64_t page_idx = first_page; page_idx < pages.num_pages(); ++page_idx)
    pages.refresh(shape, page_idx);
  pages.written = true;
  return {};
}

Result<void> KvCache::truncate(SequenceId sequence, std::int64_t num_tokens) {
  Impl& cache = *impl_;
  SIGHTLINE_TRY(Sequence* const state, Impl::find(cache, "truncate", sequence));
  if (num_tokens < 0 || num_tokens > state->length()) {
    return fail(ErrorKind::kInvalidArgument,
                "KvCache::truncate: num_tokens = {}, expected 0 to the length, {}", num_tokens,
                state->length());
  }
  const std::int64_t old_length = state->length();
  if (num_tokens == old_length) return {};
  const int page_size = cache.options.page_size;
  const std::span<const TokenCoord> kept =
      std::span(state->coords).first(static_cast<std::size_t>(num_tokens));
  auto query_pos = kv_cache::max_pos(kept);
  if (query_pos) ++*query_pos;  // the next token, at the earliest
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

// Pages with valid tokens of [begin, end) that are shared, so must be copied before they are changed.
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
  if (!in_range(delta)) {
    return fail(ErrorKind::kInvalidArgument, "KvCache::shift: delta = {} is beyond 2^53", delta);
  }
  std::vector<TokenCoord> moved = state->coords;
  std::vector<std::int64_t> moved_rope = state->rope_pos;
  for (std::int64_t i = begin; i < end; ++i) {
    TokenCoord& coord = moved[static_cast<std::size_t>(i)];
    std::int64_t& rope_pos = moved_rope[static_cast<std::size_t>(i)];
    if (!coord.valid) continue;  // padding and evicted tokens have no position to move
    coord.pos += delta;
    coord.segment_start += delta;
    rope_pos += delta;
    if (!in_range(coord.pos) || !in_range(coord.segment_start) || !in_range(rope_pos)) {
      return fail(ErrorKind::kInvalidArgument, "KvCache::shift: delta = {} moves ordinal {} beyond 2^53",
                  delta, i);
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

Result<std::int64_t> KvCache::length(SequenceId sequence) const {
  SIGHTLINE_TRY(const Sequence* const state, Impl::find(std::as_const(*impl_), "length", sequence));
  return state->length();
}

Result<std::int64_t> KvCache::num_valid(SequenceId sequence) const {
  SIGHTLINE_TRY(const Sequence* const state, Impl::find(std::as_const(*impl_), "num_valid", sequence));
  return std::count_if(state->coords.begin(), state->coords.end(),
                       [](const TokenCoord& c) { return c.valid; });
}

Result<KvView> KvCache::view(SequenceId sequence, int layer) const {
  SIGHTLINE_TRY(const Sequence* const state, Impl::find(std::as_const(*impl_), "view", sequence));
  if (layer < 0 || layer >= num_layers()) {
    return fail(ErrorKind::kInvalidArgument, "KvCache::view: layer = {}, expected below {}", layer,
                num_layers());
  }
  const auto at = static_cast<std::size_t>(layer);
  const PageShape& shape = impl_->shape(at);
  KvView view;
  view.layout = shape.layout;
  view.key_type = shape.key_type;
  view.value_type = shape.value_type;
  view.stage = impl_->layers[at].spec.rope.cache_stage;
  view.num_kv_heads = shape.num_kv_heads;
  view.num_slots = state->length();
  view.num_pages = state->layers[at].num_pages();
  view.pages = state->layers[at].view;
  view.coords = state->coords;
  view.rope_pos = state->rope_pos;
  return view;
}

int KvCache::num_layers() const { return static_cast<int>(impl_->layers.size()); }

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
