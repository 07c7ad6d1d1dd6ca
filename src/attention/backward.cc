// attention_backward: checks, then wave by wave pack, run, finish; last the sums over all rows.
#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/backward_call.h"
#include "attention/validate.h"

namespace sightline {

namespace {

constexpr const char* kFunction = "attention_backward";

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool repeats_cells(const StridedView<float, 3>& view) {
  for (std::size_t i = 0; i < 3; ++i) {
    if (view.strides[i] == 0 && view.shape[i] > 1) return true;
  }
  return false;
}

// A gradient that is written: its shape, its data, and that no two entries share a cell.
Result<void> check_written(const char* name, const StridedView<float, 3>& view,
                           const std::array<std::int64_t, 3>& expected) {
  SIGHTLINE_CHECK(check_shape(kFunction, name, view.shape, expected));
  if (view.size() > 0 && view.data == nullptr) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} has no data", kFunction, name);
  }
  if (!repeats_cells(view)) return {};
  return fail(ErrorKind::kInvalidArgument, "{}: {} has a stride of 0", kFunction, name);
}

Result<void> check_count(const char* name, std::size_t got, bool exists, int num_q_heads) {
  if (got == 0 || (exists && got == at(num_q_heads))) return {};
  return fail(ErrorKind::kInvalidArgument, "{}: gradients.{} has {} entries, expected {}none", kFunction,
              name, got, exists ? fmt::format("{} or ", num_q_heads) : "");
}

Result<void> check_upstream(const AttentionSpec& spec, std::int64_t num_q_tokens,
                            const AttentionUpstream& up) {
  const HeadSpec& heads = spec.heads;
  SIGHTLINE_CHECK((check_shape<3>(kFunction, "d_out", up.d_out.shape, up.out.shape)));
  if (up.d_out.data == nullptr || up.lse.data == nullptr) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} has no data", kFunction,
                up.d_out.data == nullptr ? "d_out" : "lse");
  }
  if (up.d_lse.data == nullptr) return {};
  return check_shape<2>(kFunction, "d_lse", up.d_lse.shape, {num_q_tokens, heads.num_q_heads});
}

Result<void> check_gradients(const AttentionSpec& spec, const AttentionUpstream& up, const ContiguousKv& kv,
                             const AttentionExtras& extras, const AttentionGradients& to) {
  const HeadSpec& heads = spec.heads;
  const auto num_kv = static_cast<std::int64_t>(kv.coords.size());
  SIGHTLINE_CHECK((check_written("d_q", to.d_q, up.q.shape)));
  SIGHTLINE_CHECK((check_written("d_k", to.d_k, {num_kv, heads.num_kv_heads, heads.qk_head_dim})));
  SIGHTLINE_CHECK((check_written("d_v", to.d_v, {num_kv, heads.num_kv_heads, heads.v_head_dim})));
  if (to.d_bias.data != nullptr) {
    SIGHTLINE_CHECK(
        (check_shape<3>(kFunction, "d_bias (shaped as extras.bias)", to.d_bias.shape,
                        extras.bias.data == nullptr ? std::array<std::int64_t, 3>{} : extras.bias.shape)));
  }
  SIGHTLINE_CHECK(check_count("d_alibi_slopes", to.d_alibi_slopes.size(), !spec.score.alibi_slopes.empty(),
                              heads.num_q_heads));
  return check_count("d_sink_logits", to.d_sink_logits.size(), !spec.score.sink_logits.empty(),
                     heads.num_q_heads);
}

// Every cell that the view reaches becomes 0, each once.
void clear(const StridedView<float, 3>& view, ThreadPool& pool) {
  if (view.data == nullptr) return;
  std::array<std::int64_t, 3> shape = view.shape;
  for (std::size_t i = 0; i < 3; ++i) {
    if (view.strides[i] == 0) shape[i] = std::min<std::int64_t>(shape[i], 1);
  }
  pool.parallel_for(shape[0], [&](std::int64_t i, int) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      float* row = view.data + i * view.strides[0] + j * view.strides[1];
      for (std::int64_t k = 0; k < shape[2]; ++k) row[k * view.strides[2]] = 0.0F;
    }
  });
}

// What the rows of the wave give to their sinks.
void add_sinks(const BackwardCall& call) {
  if (call.gradients->d_sink_logits.empty()) return;
  const BackwardWave& wave = call.scratch->wave;
  for (const RowBlock& block : wave.blocks) {
    const KeyStream& stream = call.plan->streams[at(block.item.stream)];
    for (int r = 0; r < block.item.num_rows(); ++r) {
      const int head = block.item.head_of(r);
      const double lse = call.upstream->lse(stream.q_rows[at(block.item.query_of(r))], head);
      const double weight =
          std::exp(call.spec->score.sink_logits[at(head)] - lse) * wave.share[at(block.first_row + r)];
      if (weight != 0.0) call.scratch->d_sinks[at(head)] -= weight * wave.delta[at(block.first_row + r)];
    }
  }
}

void run_wave(const BackwardCall& call) {
  BackwardScratch& scratch = *call.scratch;
  BackwardWave& wave = scratch.wave;
  ThreadPool& pool = *call.context->pool;
  const auto size = [](const auto& items) { return static_cast<std::int64_t>(items.size()); };
  pool.parallel_for(size(wave.blocks), [&](std::int64_t i, int thread) {
    pack_block(call, wave.blocks[at(i)], scratch.threads[at(thread)]);
  });
  if (std::ranges::any_of(wave.blocks, &RowBlock::far)) {
    pool.parallel_for(size(wave.items), [&](std::int64_t i, int thread) {
      sum_key_tile(call, wave.items[at(i)], scratch.threads[at(thread)]);
    });
    for (const RowBlock& block : wave.blocks) {
      if (block.far) finish_shares(call, block);
    }
    wave.restart_turns();
  }
  const std::function<void(std::int64_t, int)> run_item = [&](std::int64_t i, int thread) {
    run_key_tile(call, wave.items[at(i)], scratch.threads[at(thread)]);
  };
  if (call.sums_bias) {
    for (std::int64_t i = 0; i < size(wave.items); ++i) run_item(i, 0);
  } else {
    pool.parallel_for(size(wave.items), run_item);
  }
  pool.parallel_for(size(wave.blocks), [&](std::int64_t i, int) { finish_block(call, wave.blocks[at(i)]); });
  add_sinks(call);
}

// Partials of the tiles in their order.
void sum_slopes(const BackwardCall& call) {
  const std::span<float> to = call.gradients->d_alibi_slopes;
  if (to.empty()) return;
  const int group = call.spec->heads.group_size();
  std::vector<double> sums(to.size(), 0.0);
  const double* from = call.scratch->d_slopes.data();
  for (const KeyStream& stream : call.plan->streams) {
    for (int head = 0; head < static_cast<int>(to.size()); head += group) {
      for (std::int64_t tile = 0; tile < stream.num_tiles(); ++tile, from += group) {
        for (int h = 0; h < group; ++h) sums[at(head + h)] += from[h];
      }
    }
  }
  for (std::size_t h = 0; h < to.size(); ++h) to[h] = static_cast<float>(sums[h]);
}

// A query that sees no key hands the gradient of its lse to its sink.
void finish_sinks(const BackwardCall& call) {
  const std::span<float> to = call.gradients->d_sink_logits;
  for (std::size_t head = 0; head < to.size(); ++head) {
    double sum = call.scratch->d_sinks[head];
    for (const std::int64_t row : call.plan->unseeing) sum -= row_delta(call, row, static_cast<int>(head));
    to[head] = static_cast<float>(sum);
  }
}

void run(BackwardCall& call, const QueryBatch& queries) {
  derive(call);
  const HeadSpec& heads = call.spec->heads;
  const ScoreSpec& score = call.spec->score;
  AttentionContext::Impl& context = *call.context;
  context.stats = {};
  call.scratch = &context.backward;
  call.scale = static_cast<float>(softmax_scale(score, heads));
  call.padded_qk_dim = PageLayout{.v_head_dim = heads.qk_head_dim}.padded_v_dim();
  call.sums_bias = call.gradients->d_bias.data != nullptr && repeats_cells(call.gradients->d_bias);
  call.num_in_flight = call.sums_bias ? 1 : std::max(2, context.pool->num_threads());
  prepare_rotation(call, queries);
  call.scratch->threads.resize(at(context.pool->num_threads()));
  for (BackwardThread& thread : call.scratch->threads) {
    thread.reserve(heads, score.logit_softcap > 0.0, score.dropout.rate > 0.0);
    thread.pairs_computed = 0;
    thread.tiles_careful = 0;
  }
  if (!call.gradients->d_alibi_slopes.empty()) {
    std::int64_t partials = 0;
    for (const KeyStream& stream : call.plan->streams) partials += stream.num_tiles() * heads.num_q_heads;
    call.scratch->d_slopes.assign(at(partials), 0.0);
  }
  // Tokens that no stream holds, and cells of a bias that no pair reaches.
  const AttentionGradients& to = *call.gradients;
  for (const auto* view : {&to.d_q, &to.d_k, &to.d_v, &to.d_bias}) clear(*view, *context.pool);
  call.scratch->d_sinks.assign(call.gradients->d_sink_logits.size(), 0.0);
  call.scratch->wave.next_slope = 0;
  for (std::int64_t unit = 0; unit < num_units(call);) {
    unit = plan_wave(call, unit, call.scratch->wave);
    run_wave(call);
  }
  sum_slopes(call);
  finish_sinks(call);
  context.stats.pairs_visible = call.plan->pairs_visible;
  for (const BackwardThread& thread : call.scratch->threads) {
    context.stats.pairs_computed += thread.pairs_computed;
    context.stats.tiles_careful += thread.tiles_careful;
  }
}

}  // namespace

Result<void> attention_backward(const AttentionSpec& spec, const AttentionPlan& plan,
                                const AttentionUpstream& upstream, const QueryBatch& queries,
                                const ContiguousKv& kv, const AttentionExtras& extras,
                                const AttentionGradients& gradients, AttentionContext& context) {
  SIGHTLINE_CHECK(validate_contiguous(kFunction, spec, plan, queries, kv,
                                      {upstream.q, upstream.out, upstream.lse}, extras));
  if (spec.rope.pairing != RopePairing::kNone && spec.rope.position_policy == PositionPolicy::kInCache) {
    return fail(ErrorKind::kInvalidArgument,
                "{}: rope.position_policy = in_cache, expected text (only the oracle differentiates in-cache "
                "positions)",
                kFunction);
  }
  const std::int64_t num_q_tokens = plan.impl().num_q_tokens;
  SIGHTLINE_CHECK(check_upstream(spec, num_q_tokens, upstream));
  SIGHTLINE_CHECK(check_gradients(spec, upstream, kv, extras, gradients));
  BackwardCall call;
  call.spec = &spec;
  call.plan = &plan.impl();
  call.q = upstream.q;
  call.extras = &extras;
  call.contiguous = &kv;
  call.context = &context.impl();
  call.upstream = &upstream;
  call.gradients = &gradients;
  run(call, queries);
  return {};
}

}  // namespace sightline
