// Making a cache, appending, writing, looking. `append` checks everything and reserves what it needs, and
// only then changes the cache. What changes stored tokens is in kv_cache_edit.cc.
#include "sightline/kv_cache/kv_cache.h"

#include "kv_cache/kv_cache_impl.h"

namespace sightline {

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

Result<KvCache::Impl::AppendPlan> KvCache::Impl::plan_append(const Sequence& sequence,
                                                             std::span<const TokenCoord> coords,
                                                             std::span<const std::int64_t> rope_pos) const {
  SIGHTLINE_CHECK(check_written("append", sequence));
  if (!rope_pos.empty() && rope_pos.size() != coords.size()) {
    return fail(ErrorKind::kInvalidArgument, "KvCache::append: {} coords and {} entries of rope_pos",
                coords.size(), rope_pos.size());
  }
  AppendPlan plan;
  plan.num_rows = std::ssize(coords);
  for (std::size_t i = 0; i < coords.size(); ++i) {
    if (!coords[i].valid) continue;  // takes no ordinal: what follows must not depend on it
    plan.coords.push_back(coords[i]);
    plan.rope_pos.push_back(rope_pos.empty() ? coords[i].pos : rope_pos[i]);
    plan.rows.push_back(static_cast<std::int64_t>(i));
    if (!is_pos(coords[i].pos)) {
      return fail(ErrorKind::kInvalidArgument, "KvCache::append: token {} has pos {}, expected 0 to {}", i,
                  coords[i].pos, kMaxPos);
    }
    if (!is_coordinate(coords[i].segment_start) || !is_coordinate(plan.rope_pos.back())) {
      return fail(ErrorKind::kInvalidArgument,
                  "KvCache::append: token {} has segment_start {} and rope_pos {}, expected within 2^53", i,
                  coords[i].segment_start, plan.rope_pos.back());
    }
  }
  const std::int64_t begin = sequence.length();
  plan.end = begin + std::ssize(plan.coords);
  plan.first_page = begin / page_size();
  plan.end_page = (plan.end + page_size() - 1) / page_size();
  const auto query_pos = kv_cache::min_pos(plan.coords);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    const LayerPages& pages = sequence.layers[layer];
    SIGHTLINE_CHECK(check_freed("append", layer, pages.max_freed_pos, query_pos));
    PageDemand demand{layers[layer].shape_idx, plan.end_page - plan.first_page, 0};
    if (plan.first_page < pages.num_pages() && pages.owns(plan.first_page)) --demand.num_wanted;
    plan.releases.push_back({{}, {}, pages.window_cursor});
    if (layers[layer].reach.bounded && query_pos) {
      plan.releases.back() = kv_cache::find_window_release(sequence, pages, layers[layer].reach,
                                                           options.page_size, *query_pos, begin);
      for (const std::int64_t page_idx : plan.releases.back().pages) {
        if (pages.owns(page_idx)) ++demand.num_returned;
      }
    }
    plan.demands.push_back(demand);
  }
  for (const Rotation& rotation : rotations) {
    plan.rotation.push_back(kv_cache::rotation_rows(rotation, plan.rope_pos));
  }
  return plan;
}

// Room for everything that apply_append adds, so that it never allocates.
void KvCache::Impl::grow_tables(Sequence& sequence, const AppendPlan& plan) const {
  const auto grow = [](auto& table, std::int64_t size) {
    // By doubling: exact growth would copy everything for every token of a decode.
    const auto room = static_cast<std::size_t>(size);
    if (table.capacity() < room) table.reserve(std::max(room, 2 * table.capacity()));
  };
  grow(sequence.coords, plan.end);
  grow(sequence.rope_pos, plan.end);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    grow(sequence.layers[layer].pages, plan.end_page);
    grow(sequence.layers[layer].view, plan.end_page * shape(layer).num_kv_heads);
  }
}

void KvCache::Impl::apply_append(Sequence& sequence, AppendPlan&& plan) {
  // Every layer gives back before any takes: the pool counted on what all of them return.
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    LayerPages& pages = sequence.layers[layer];
    const kv_cache::WindowRelease& release = plan.releases[layer];
    for (const std::int64_t page_idx : release.pages) free_page(sequence, layer, page_idx);
    pages.max_freed_pos = std::max(pages.max_freed_pos, release.max_pos);
    pages.window_cursor = release.cursor;
  }
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    LayerPages& pages = sequence.layers[layer];
    pages.pages.resize(static_cast<std::size_t>(plan.end_page));
    pages.view.resize(static_cast<std::size_t>(plan.end_page * shape(layer).num_kv_heads));
    for (std::int64_t page_idx = plan.first_page; page_idx < plan.end_page; ++page_idx) {
      if (!pages.owns(page_idx)) own_page(sequence, layer, page_idx);
    }
    pages.written = false;
  }
  sequence.pending_begin = sequence.length();
  sequence.pending_rows = std::move(plan.rows);
  sequence.num_pending_rows = plan.num_rows;
  sequence.pending_rotation = std::move(plan.rotation);
  sequence.coords.insert(sequence.coords.end(), plan.coords.begin(), plan.coords.end());
  sequence.rope_pos.insert(sequence.rope_pos.end(), plan.rope_pos.begin(), plan.rope_pos.end());
}

Result<void> KvCache::append(SequenceId sequence, std::span<const TokenCoord> coords,
                             std::span<const std::int64_t> rope_pos) {
  SIGHTLINE_TRY(Sequence* const state, Impl::find(*impl_, "append", sequence));
  SIGHTLINE_TRY(Impl::AppendPlan plan, impl_->plan_append(*state, coords, rope_pos));
  if (coords.empty()) return {};
  if (auto reserved = impl_->pool.reserve(plan.demands); !reserved) {
    return fail(reserved.error().kind, "KvCache::append: {} tokens to sequence {}: {}", coords.size(),
                sequence, reserved.error().message);
  }
  impl_->grow_tables(*state, plan);  // after all that can fail: it moves what views point to
  impl_->apply_append(*state, std::move(plan));
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
  const std::int64_t num_rows = state->num_pending_rows;
  const auto check = [&](const char* name, const StridedView<const float, 3>& array,
                         int dim) -> Result<void> {
    if (array.shape[0] == num_rows && array.shape[1] == heads.num_kv_heads && array.shape[2] == dim)
      return {};
    return fail(ErrorKind::kInvalidArgument, "KvCache::write: {} [{}, {}, {}], expected [{}, {}, {}]", name,
                array.shape[0], array.shape[1], array.shape[2], num_rows, heads.num_kv_heads, dim);
  };
  SIGHTLINE_CHECK(check("keys", keys, heads.qk_head_dim));
  SIGHTLINE_CHECK(check("values", values, heads.v_head_dim));

  const PageShape& shape = impl_->shape(at);
  const int rotation_idx = impl_->layers[at].rotation_idx;
  std::vector<float> key(static_cast<std::size_t>(heads.qk_head_dim));
  std::vector<float> value(static_cast<std::size_t>(heads.v_head_dim));
  for (std::int64_t i = 0; i < std::ssize(state->pending_rows); ++i) {
    const std::int64_t row = state->pending_rows[static_cast<std::size_t>(i)];
    const std::int64_t ordinal = state->pending_begin + i;
    const std::int64_t page_idx = ordinal / impl_->page_size();
    Page& page = *pages.pages[static_cast<std::size_t>(page_idx)];
    for (int head = 0; head < heads.num_kv_heads; ++head) {
      for (std::size_t dim = 0; dim < key.size(); ++dim) key[dim] = keys(row, head, dim);
      for (std::size_t dim = 0; dim < value.size(); ++dim) value[dim] = values(row, head, dim);
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
const KvCacheOptions& KvCache::options() const { return impl_->options; }

}  // namespace sightline
