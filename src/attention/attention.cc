// attention_forward: checks, scratch, then pack, run, merge. The order of the phases is the whole of it.
#include "sightline/attention/attention.h"

#include <algorithm>

#include "attention/call.h"
#include "attention/validate.h"

namespace sightline {

namespace {

constexpr const char* kFunction = "attention_forward";

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

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

struct ForwardArrays {
  StridedView<const float, 3> q;
  StridedView<float, 3> out;
  StridedView<float, 2> lse;
};

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
  SIGHTLINE_CHECK(validate_contiguous(kFunction, spec, plan, queries, kv, {q, out, lse}, extras));
  ForwardCall call = make_call(spec, plan, {q, out, lse}, extras, context);
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
  SIGHTLINE_CHECK(check_plan(kFunction, spec, plan.impl(), queries, true));
  std::int64_t max_slots = 0;
  for (std::size_t s = 0; s < kv.views.size(); ++s) {
    if (kv.views[s].num_slots != plan.impl().num_slots[s]) {
      return fail(ErrorKind::kInvalidArgument, "{}: views[{}] has {} slots, the plan {}", kFunction, s,
                  kv.views[s].num_slots, plan.impl().num_slots[s]);
    }
    max_slots = std::max(max_slots, kv.views[s].num_slots);
  }
  SIGHTLINE_CHECK(check_pages(plan.impl(), kv));
  SIGHTLINE_CHECK(
      validate_arrays(kFunction, spec, plan.impl().num_q_tokens, max_slots, {q, out, lse}, extras));
  ForwardCall call = make_call(spec, plan, {q, out, lse}, extras, context);
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
                      impl_->kv_rope.bytes() + impl_->positions.capacity() * sizeof(std::int64_t) +
                      impl_->backward.bytes();
  for (const ThreadScratch& thread : impl_->threads) bytes += thread.bytes();
  return bytes;
}

}  // namespace sightline
