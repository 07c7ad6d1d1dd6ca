// Which units of work run together, their memory, and what is packed for them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/backward_call.h"
#include "attention/pack_rows.h"
#include "attention/tile_rows.h"
#include "sightline/kernels/page_layout.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// An lse in f32 is off by up to 1e-6 here, as a weight in [0, 1] and the sums that made it may be.
constexpr float kFarLse = 16.0F;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::int64_t whole_groups(std::int64_t rows) {
  return (rows + kernels::kGroupRows - 1) / kernels::kGroupRows * kernels::kGroupRows;
}

std::size_t padded(int dim) { return at(PageLayout{.v_head_dim = dim}.padded_v_dim()); }

// Floats of one row of a wave: q, dO, d_q, then lse, share, delta and a sum in double.
std::int64_t row_floats(const BackwardCall& call) {
  return call.spec->heads.qk_head_dim + call.spec->heads.v_head_dim + call.padded_qk_dim + 5;
}

// What q, k and v of the call take: a wave holds no more, but at least one unit.
std::int64_t wave_floats(const BackwardCall& call) {
  const HeadSpec& heads = call.spec->heads;
  return call.plan->num_q_tokens * heads.num_q_heads * heads.qk_head_dim +
         call.plan->num_kv_tokens * heads.num_kv_heads * (heads.qk_head_dim + heads.v_head_dim);
}

void add_blocks(const AttentionPlan::Impl& plan, std::int32_t stream, std::int32_t kv_head,
                BackwardWave& wave) {
  for (std::int64_t q_tile = 0; q_tile < plan.streams[at(stream)].map.num_q_tiles(); ++q_tile) {
    for (int head = 0; head < plan.heads.group_size(); head += kMaxRows) {
      RowBlock block;
      block.item = item_rows(plan, stream, q_tile, kv_head, head);
      block.first_row = wave.num_rows;
      wave.num_rows += whole_groups(block.item.num_rows());
      wave.blocks.push_back(block);
    }
  }
}

}  // namespace

void BackwardThread::reserve(const HeadSpec& heads, bool has_softcap, bool has_dropout) {
  const auto dims = at(heads.qk_head_dim);
  const auto v_dims = at(heads.v_head_dim);
  constexpr std::size_t kPairs = static_cast<std::size_t>(kMaxRows) * kTileKeys;
  rows.reserve_discard(kTileKeys * std::max(dims, v_dims));
  keys.reserve_discard(kTileKeys * dims);
  key_rows.reserve_discard(kTileKeys * padded(heads.qk_head_dim));
  values.reserve_discard(kTileKeys * v_dims);
  scores.reserve_discard(kPairs);
  d_weights.reserve_discard(kPairs);
  cap_slope.reserve_discard(has_softcap ? kPairs : 0);
  kept.reserve_discard(has_dropout ? kPairs : 0);
  d_keys.reserve_discard(kTileKeys * dims);
  d_values.reserve_discard(kTileKeys * v_dims);
  ones.reserve_discard(kMaxRows);
  std::fill_n(ones.data(), kMaxRows, 1.0F);
  bias.reserve_discard(kTileKeys);
  words.reserve_discard(2 * kMaxRows);
  query_words.reserve_discard(2 * kMaxRows);
}

std::size_t BackwardThread::bytes() const {
  std::size_t floats = 0;
  for (const auto* buffer : {&rows, &keys, &key_rows, &values, &scores, &d_weights, &cap_slope, &kept,
                             &d_keys, &d_values, &ones, &bias}) {
    floats += buffer->size();
  }
  return floats * sizeof(float) + (words.size() + query_words.size()) * sizeof(std::uint64_t);
}

void BackwardWave::clear() {
  units.clear();
  blocks.clear();
  items.clear();
  num_rows = 0;
}

void BackwardWave::reserve(const HeadSpec& heads) {
  const auto rows = at(num_rows);
  q.reserve_discard(rows * at(heads.qk_head_dim));
  d_out.reserve_discard(rows * at(heads.v_head_dim));
  d_q.reserve_discard(rows * padded(heads.qk_head_dim));
  lse.reserve_discard(rows);
  share.reserve_discard(rows);
  sums.reserve_discard(rows);
  delta.reserve_discard(rows);
  if (blocks.size() > taken_size) {
    taken = std::make_unique<std::atomic<std::int32_t>[]>(blocks.size());
    taken_size = blocks.size();
  }
  restart_turns();
}

void BackwardWave::restart_turns() {
  for (std::size_t i = 0; i < blocks.size(); ++i) taken[i].store(0, std::memory_order_relaxed);
}

std::size_t BackwardWave::bytes() const {
  return (q.size() + d_out.size() + d_q.size() + lse.size() + share.size() + delta.size()) * sizeof(float) +
         sums.size() * sizeof(double) + taken_size * sizeof(taken[0]) +
         units.capacity() * sizeof(BackwardUnit) + blocks.capacity() * sizeof(RowBlock) +
         items.capacity() * sizeof(KeyTileItem);
}

std::size_t BackwardScratch::bytes() const {
  std::size_t bytes = wave.bytes() + d_slopes.capacity() * sizeof(double);
  for (const BackwardThread& thread : threads) bytes += thread.bytes();
  return bytes;
}

std::int64_t num_units(const BackwardCall& call) {
  return static_cast<std::int64_t>(call.plan->streams.size()) * call.spec->heads.num_kv_heads;
}

std::int64_t plan_wave(const BackwardCall& call, std::int64_t next_unit, BackwardWave& wave) {
  const HeadSpec& heads = call.spec->heads;
  wave.clear();
  const std::int64_t max_rows = wave_floats(call) / row_floats(call);
  std::int64_t unit = next_unit;
  for (; unit < num_units(call); ++unit) {
    const auto stream_idx = static_cast<std::int32_t>(unit / heads.num_kv_heads);
    const auto kv_head = static_cast<std::int32_t>(unit % heads.num_kv_heads);
    const KeyStream& stream = call.plan->streams[at(stream_idx)];
    const std::int64_t rows = static_cast<std::int64_t>(stream.q_rows.size()) * heads.group_size();
    if (!wave.units.empty() && wave.num_rows + rows > max_rows) break;
    BackwardUnit added{stream_idx, kv_head, static_cast<std::int32_t>(wave.blocks.size()), 0, 0};
    add_blocks(*call.plan, stream_idx, kv_head, wave);
    added.block_end = static_cast<std::int32_t>(wave.blocks.size());
    added.first_slope = wave.next_slope;
    wave.next_slope += stream.num_tiles() * heads.group_size();
    wave.units.push_back(added);
  }
  // Tiles of a few units in turn: a tile seldom waits for the one before it, and the rows stay in cache.
  for (std::size_t first = 0; first < wave.units.size(); first += at(call.num_in_flight)) {
    const std::size_t last = std::min(wave.units.size(), first + at(call.num_in_flight));
    std::int64_t most_tiles = 0;
    const auto tiles_of = [&](std::size_t u) {
      return call.plan->streams[at(wave.units[u].stream)].num_tiles();
    };
    for (std::size_t u = first; u < last; ++u) most_tiles = std::max(most_tiles, tiles_of(u));
    for (std::int64_t tile = 0; tile < most_tiles; ++tile) {
      for (std::size_t u = first; u < last; ++u) {
        if (tile < tiles_of(u)) {
          wave.items.push_back({static_cast<std::int32_t>(u), static_cast<std::int32_t>(tile)});
        }
      }
    }
  }
  wave.reserve(heads);
  return unit;
}

double row_delta(const BackwardCall& call, std::int64_t q_row, int head) {
  const AttentionUpstream& up = *call.upstream;
  const auto& sinks = call.spec->score.sink_logits;
  const float lse = up.lse(q_row, head);
  const float nothing = sinks.empty() ? kMinusInfinity : static_cast<float>(sinks[at(head)]);
  double delta = 0.0;
  if (lse != nothing) {
    const float* out = &up.out(q_row, head, 0);
    const float* d_out = &up.d_out(q_row, head, 0);
    for (std::int64_t i = 0; i < up.out.shape[2]; ++i) {
      delta += static_cast<double>(out[i * up.out.strides[2]]) * d_out[i * up.d_out.strides[2]];
    }
  }
  return up.d_lse.data == nullptr ? delta : delta - up.d_lse(q_row, head);
}

void pack_block(const BackwardCall& call, RowBlock& block, BackwardThread& thread) {
  BackwardWave& wave = call.scratch->wave;
  const HeadSpec& heads = call.spec->heads;
  const KeyStream& stream = call.plan->streams[at(block.item.stream)];
  const std::int64_t rows = whole_groups(block.item.num_rows());
  float* q = wave.q.data() + block.first_row * heads.qk_head_dim;
  float* d_out = wave.d_out.data() + block.first_row * heads.v_head_dim;
  pack_rows(*call.table, stream, block.item, call.q, &call.context->q_rope, thread.rows.data(), q);
  pack_rows(*call.table, stream, block.item, call.upstream->d_out, nullptr, thread.rows.data(), d_out);
  block.flagged = !all_finite(q, rows * heads.qk_head_dim) || !all_finite(d_out, rows * heads.v_head_dim);
  std::fill_n(wave.d_q.data() + block.first_row * call.padded_qk_dim, rows * call.padded_qk_dim, 0.0F);
  for (int r = 0; r < block.item.num_rows(); ++r) {
    const std::int64_t q_row = stream.q_rows[at(block.item.query_of(r))];
    const int head = block.item.head_of(r);
    const float lse = call.upstream->lse(q_row, head);
    block.far = block.far || (std::abs(lse) > kFarLse && std::isfinite(lse));
    wave.lse[at(block.first_row + r)] =
        call.modifies ? lse : static_cast<float>(static_cast<double>(lse) * std::numbers::log2e);
    wave.share[at(block.first_row + r)] = 1.0F;
    wave.sums[at(block.first_row + r)] = 0.0;
    wave.delta[at(block.first_row + r)] = static_cast<float>(row_delta(call, q_row, head));
  }
}

void finish_shares(const BackwardCall& call, const RowBlock& block) {
  BackwardWave& wave = call.scratch->wave;
  const auto& sinks = call.spec->score.sink_logits;
  const KeyStream& stream = call.plan->streams[at(block.item.stream)];
  for (int r = 0; r < block.item.num_rows(); ++r) {
    const int head = block.item.head_of(r);
    const double lse = call.upstream->lse(stream.q_rows[at(block.item.query_of(r))], head);
    double sum = wave.sums[at(block.first_row + r)];
    if (!sinks.empty()) sum += std::exp(sinks[at(head)] - lse);
    if (std::abs(lse) > kFarLse && sum > 0.0 && std::isfinite(sum)) {
      wave.share[at(block.first_row + r)] = static_cast<float>(1.0 / sum);
    }
  }
}

}  // namespace sightline
