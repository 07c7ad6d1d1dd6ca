// attention_forward: checks, scratch, then pack, run, merge. The order of the phases is the whole of it.
#include "sightline/attention/attention.h"

#include <algorithm>

#include "attention/call.h"
#include "attention/validate.h"

namespace sightline {

namespace {

constexpr const char* kFunction = "attention_forward";

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Result<void> check_plan(const AttentionSpec& spec, const AttentionPlan::Impl& plan, const QueryBatch& queries,
                        bool paged) {
  if (!(plan.heads == spec.heads)) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for other heads than spec.heads", kFunction);
  }
  if (!(plan.mask == spec.mask)) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for mask {}, expected {}", kFunction,
                to_string(plan.mask), to_string(spec.mask));
  }
  if (plan.position_policy != spec.rope.position_policy) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for another rope.position_policy", kFunction);
  }
  if (plan.paged != paged) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for {} keys, got {}", kFunction,
                plan.paged ? "paged" : "contiguous", paged ? "paged" : "contiguous");
  }
  if (!std::ranges::equal(plan.q_offsets, queries.q_offsets)) {
    return fail(ErrorKind::kInvalidArgument,
                "{}: plan was made for {} query tokens in {} sequences, got {} in {}", kFunction,
                plan.num_q_tokens, plan.num_sequences, queries.coords.size(), queries.q_offsets.size() - 1);
  }
  return {};
}

// Every key of the plan must lie in a page that is there.
Result<void> check_pages(const AttentionPlan::Impl& plan, const PagedKv& kv) {
  for (const KeyStream& stream : plan.streams) {
    const KvView& view = kv.views[at(stream.sequence)];
    std::int64_t last_page = -1;
    for (const std::int64_t slot : stream.key_rows) {
      if (slot < 0 || slot / view.layout.page_size == last_page) continue;
      last_page = slot / view.layout.page_size;
      for (int head = 0; head < view.num_kv_heads; ++head) {
        const KvPage& page = view.page(last_page, head);
        if (page.keys != nullptr && page.values != nullptr) continue;
        return fail(ErrorKind::kInvalidArgument,
                    "{}: views[{}]: page {} of head {} was freed after the plan was made", kFunction,
                    stream.sequence, last_page, head);
      }
    }
  }
  return {};
}

void derive(ForwardCall& call) {
  const ScoreSpec& score = call.spec->score;
  call.padded_v_dim = call.packed_layout().padded_v_dim();
  call.key_heads = call.value_heads = call.spec->heads.num_kv_heads;
  if (call.contiguous != nullptr) {
    if (call.contiguous->k.strides[1] == 0) call.key_heads = 1;
    if (call.contiguous->v.strides[1] == 0) call.value_heads = 1;
  }
  const RopeSpec& rope = call.spec->rope;
  if (rope.pairing != RopePairing::kNone && rope.position_policy == PositionPolicy::kInCache) {
    call.num_first = reach_back(call.spec->mask).num_first;
  }
  const double scale = softmax_scale(score, call.spec->heads);
  call.scale_log2 = static_cast<float>(scale * 1.4426950408889634);
  // The fused scale needs a finite, positive factor: the maximum of scores is then that of dot products.
  call.modifies = score.logit_softcap > 0.0 || !score.alibi_slopes.empty() ||
                  call.extras->bias.data != nullptr || !(call.scale_log2 > 0.0F);
  call.table = call.context->table;
}

void reserve_scratch(const ForwardCall& call) {
  AttentionContext::Impl& context = *call.context;
  context.threads.resize(at(context.pool->num_threads()));
  for (ThreadScratch& scratch : context.threads) {
    scratch.reserve(call.spec->heads, {.has_first = call.num_first > 0, .is_paged = call.paged != nullptr});
    scratch.pairs_computed = 0;
    scratch.tiles_careful = 0;
  }
  context.partials.reserve_discard(at(call.plan->num_partials) * kMaxPartialRows *
                                   (at(call.padded_v_dim) + 2));
}

std::int64_t rope_pos_of(std::span<const std::int64_t> rope_pos, std::span<const TokenCoord> coords,
                         std::size_t row) {
  if (!coords[row].valid) return 0;
  return rope_pos.empty() ? coords[row].pos : rope_pos[row];
}

void prepare_rotation(const ForwardCall& call, const QueryBatch& queries) {
  AttentionContext::Impl& context = *call.context;
  const RopeSpec& rope = call.spec->rope;
  const std::int64_t length = call.extras->rope_length;
  std::vector<std::int64_t>& positions = context.positions;
  positions.resize(queries.coords.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = rope_pos_of(queries.rope_pos, queries.coords, i);
  }
  context.q_rope.prepare(rope, length, positions, *context.pool);
  if (call.num_first > 0) {
    const ReachBack reach = reach_back(call.spec->mask);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const TokenCoord& q = queries.coords[i];
      if (!q.valid) continue;
      positions[i] = in_cache_rope_pos(positions[i], q.pos - q.segment_start, reach.num_first + reach.window);
    }
    context.q_first_rope.prepare(rope, length, positions, *context.pool);
  }
  positions.clear();
  if (call.contiguous != nullptr) {
    for (std::size_t i = 0; i < call.contiguous->coords.size(); ++i) {
      positions.push_back(rope_pos_of(call.contiguous->rope_pos, call.contiguous->coords, i));
    }
  } else if (std::ranges::any_of(call.paged->views, [](const KvView& view) {
               return view.stage == CacheStage::kBeforeRotation;
             })) {
    // Rotated pages need no table; rows of a sequence begin at its slot offset.
    for (std::size_t s = 0; s < call.paged->views.size(); ++s) {
      const KvView& view = call.paged->views[s];
      const auto slots = view.stage == CacheStage::kBeforeRotation ? at(view.num_slots) : std::size_t{0};
      positions.resize(at(call.plan->slot_offsets[s]), 0);
      for (std::size_t i = 0; i < slots; ++i)
        positions.push_back(view.coords[i].valid ? view.rope_pos[i] : 0);
    }
  }
  context.kv_rope.prepare(rope, length, positions, *context.pool);
}

// All but where keys and values lie.
ForwardCall make_call(const AttentionSpec& spec, const AttentionPlan& plan, const ForwardArrays& arrays,
                      const AttentionExtras& extras, AttentionContext& context) {
  ForwardCall call;
  call.spec = &spec;
  call.plan = &plan.impl();
  call.q = arrays.q;
  call.out = arrays.out;
  call.lse = arrays.lse;
  call.extras = &extras;
  call.context = &context.impl();
  return call;
}

void run(ForwardCall& call, const QueryBatch& queries) {
  derive(call);
  AttentionContext::Impl& context = *call.context;
  context.stats = {};
  reserve_scratch(call);
  prepare_rotation(call, queries);
  pack_streams(call);
  const auto& plan = *call.plan;
  context.pool->parallel_for(static_cast<std::int64_t>(plan.items.size()),
                             [&call](std::int64_t i, int thread) {
                               run_item(call, call.plan->items[at(i)], call.context->threads[at(thread)]);
                             });
  context.pool->parallel_for(static_cast<std::int64_t>(plan.merges.size()),
                             [&call](std::int64_t i, int) { run_merge(call, call.plan->merges[at(i)]); });
  for (const std::int64_t row : plan.unseeing) finish_unseeing(call, row);
  context.stats.pairs_visible = plan.pairs_visible;
  for (const ThreadScratch& scratch : context.threads) {
    context.stats.pairs_computed += scratch.pairs_computed;
    context.stats.tiles_careful += scratch.tiles_careful;
  }
}

}  // namespace

Result<void> attention_forward(const AttentionSpec& spec, const AttentionPlan& plan,
                               StridedView<const float, 3> q, const QueryBatch& queries,
                               const ContiguousKv& kv, const AttentionExtras& extras,
                               StridedView<float, 3> out, StridedView<float, 2> lse,
                               AttentionContext& context) {
  SIGHTLINE_CHECK(validate_batch(kFunction, spec, queries, extras));
  SIGHTLINE_CHECK(validate_coords(kFunction, queries, kv));
  SIGHTLINE_CHECK(check_plan(spec, plan.impl(), queries, false));
  if (!std::ranges::equal(plan.impl().kv_offsets, kv.kv_offsets)) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for other kv_offsets", kFunction);
  }
  std::int64_t max_rows = 0;
  for (std::size_t s = 1; s < kv.kv_offsets.size(); ++s) {
    max_rows = std::max(max_rows, kv.kv_offsets[s] - kv.kv_offsets[s - 1]);
  }
  const ForwardArrays arrays{q, out, lse};
  SIGHTLINE_CHECK(validate_arrays(kFunction, spec, plan.impl().num_q_tokens, max_rows, arrays, extras));
  SIGHTLINE_CHECK(validate_kv_arrays(kFunction, spec, kv));
  ForwardCall call = make_call(spec, plan, arrays, extras, context);
  call.contiguous = &kv;
  run(call, queries);
  return {};
}

Result<void> attention_forward(const AttentionSpec& spec, const AttentionPlan& plan,
                               StridedView<const float, 3> q, const QueryBatch& queries, const PagedKv& kv,
                               const AttentionExtras& extras, StridedView<float, 3> out,
                               StridedView<float, 2> lse, AttentionContext& context) {
  SIGHTLINE_CHECK(validate_batch(kFunction, spec, queries, extras));
  SIGHTLINE_CHECK(validate_views(kFunction, spec, queries, kv));
  SIGHTLINE_CHECK(check_plan(spec, plan.impl(), queries, true));
  std::int64_t max_slots = 0;
  for (std::size_t s = 0; s < kv.views.size(); ++s) {
    if (kv.views[s].num_slots != plan.impl().num_slots[s]) {
      return fail(ErrorKind::kInvalidArgument, "{}: views[{}] has {} slots, the plan {}", kFunction, s,
                  kv.views[s].num_slots, plan.impl().num_slots[s]);
    }
    max_slots = std::max(max_slots, kv.views[s].num_slots);
  }
  SIGHTLINE_CHECK(check_pages(plan.impl(), kv));
  const ForwardArrays arrays{q, out, lse};
  SIGHTLINE_CHECK(validate_arrays(kFunction, spec, plan.impl().num_q_tokens, max_slots, arrays, extras));
  ForwardCall call = make_call(spec, plan, arrays, extras, context);
  call.paged = &kv;
  run(call, queries);
  return {};
}

AttentionContext::AttentionContext(ThreadPool& pool, const kernels::KernelTable* table)
    : impl_(std::make_unique<Impl>(pool, table == nullptr ? kernels::active_table() : *table)) {}
AttentionContext::~AttentionContext() = default;
AttentionContext::AttentionContext(AttentionContext&&) noexcept = default;
ThreadPool& AttentionContext::pool() const { return *impl_->pool; }
const AttentionStats& AttentionContext::stats() const { return impl_->stats; }

std::size_t AttentionContext::scratch_bytes() const {
  const auto floats = [](const AlignedBuffer<float>& buffer) { return buffer.size() * sizeof(float); };
  std::size_t bytes = floats(impl_->packed_keys) + floats(impl_->packed_values) + floats(impl_->partials) +
                      impl_->flags.size() + impl_->q_rope.bytes() + impl_->q_first_rope.bytes() +
                      impl_->kv_rope.bytes() + impl_->positions.capacity() * sizeof(std::int64_t);
  for (const ThreadScratch& thread : impl_->threads) bytes += thread.bytes();
  return bytes;
}

}  // namespace sightline
