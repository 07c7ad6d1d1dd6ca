// Keys and values to page layout: caller's arrays and gathered documents once a call, compressed or
// unrotated pages a tile at a time. Rotation has the arithmetic of kernels/rope.h everywhere.
#include <algorithm>
#include <bit>
#include <cstring>

#include "attention/call.h"
#include "attention/tile_rows.h"
#include "sightline/base/half.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t valid_keys(const KeyStream& stream, std::int64_t tile) {
  const auto* rows = stream.key_rows.data() + tile * kTileKeys;
  return kTileKeys - std::count(rows, rows + kTileKeys, std::int64_t{-1});
}

// The stream that holds a packed tile: streams that are not in place follow each other.
const KeyStream& stream_of_tile(const AttentionPlan::Impl& plan, std::int64_t packed_tile) {
  const auto& order = plan.packed_streams;
  const auto found =
      std::upper_bound(order.begin(), order.end(), packed_tile,
                       [&](std::int64_t t, std::int32_t s) { return t < plan.streams[at(s)].packed_tile; });
  return plan.streams[at(*(found - 1))];
}

struct PackSizes {
  std::ptrdiff_t keys = 0;
  std::ptrdiff_t values = 0;
};

PackSizes pack_sizes(const ForwardCall& call) {
  return {static_cast<std::ptrdiff_t>(kTileKeys) * call.spec->heads.qk_head_dim,
          static_cast<std::ptrdiff_t>(kTileKeys) * call.padded_v_dim};
}

void pack_tile(const ForwardCall& call, std::int64_t packed_tile, ThreadScratch& scratch) {
  AttentionContext::Impl& context = *call.context;
  const HeadSpec& heads = call.spec->heads;
  const KeyStream& stream = stream_of_tile(*call.plan, packed_tile);
  const std::int64_t tile = packed_tile - stream.packed_tile;
  const PackSizes sizes = pack_sizes(call);
  const float* rows[kTileKeys];
  for (int head = 0; head < call.key_heads; ++head) {
    gather_tile(call, stream, tile, head, heads.qk_head_dim, read_key, scratch.head.data(), rows);
    rows_to_keys(*call.table, rows, heads.qk_head_dim,
                 context.packed_keys.data() + (packed_tile * call.key_heads + head) * sizes.keys);
  }
  for (int head = 0; head < call.value_heads; ++head) {
    const std::int64_t idx = packed_tile * call.value_heads + head;
    gather_tile(call, stream, tile, head, heads.v_head_dim, read_value, scratch.head.data(), rows);
    rows_to_values(rows, heads.v_head_dim, context.packed_values.data() + idx * sizes.values);
    const bool finite = std::all_of(rows, rows + kTileKeys,
                                    [&](const float* row) { return all_finite(row, heads.v_head_dim); });
    context.flags[at(idx)] = finite ? 0 : 1;
  }
}

}  // namespace

void pack_streams(const ForwardCall& call) {
  AttentionContext::Impl& context = *call.context;
  const std::int64_t tiles = call.plan->num_packed_tiles;
  if (tiles == 0) return;
  const PackSizes sizes = pack_sizes(call);
  context.packed_keys.reserve_discard(at(tiles * call.key_heads * sizes.keys));
  context.packed_values.reserve_discard(at(tiles * call.value_heads * sizes.values));
  context.flags.reserve_discard(at(tiles * call.value_heads));
  const std::int64_t bytes_per_key =
      (static_cast<std::int64_t>(call.key_heads) * call.spec->heads.qk_head_dim +
       static_cast<std::int64_t>(call.value_heads) * call.spec->heads.v_head_dim) *
      static_cast<std::int64_t>(sizeof(float));
  for (const std::int32_t s : call.plan->packed_streams) {
    const KeyStream& stream = call.plan->streams[at(s)];
    for (std::int64_t tile = 0; tile < stream.num_tiles(); ++tile) {
      context.stats.bytes_packed += valid_keys(stream, tile) * bytes_per_key;
    }
  }
  context.pool->parallel_for(tiles, [&call](std::int64_t tile, int thread) {
    pack_tile(call, tile, call.context->threads[at(thread)]);
  });
}

namespace {

void packed_operands(const ForwardCall& call, const KeyStream& stream, std::int64_t tile, int kv_head,
                     TileOperands& to) {
  const AttentionContext::Impl& context = *call.context;
  const PackSizes sizes = pack_sizes(call);
  const std::int64_t packed = stream.packed_tile + tile;
  const std::int64_t key_idx = packed * call.key_heads + (call.key_heads == 1 ? 0 : kv_head);
  const std::int64_t value_idx = packed * call.value_heads + (call.value_heads == 1 ? 0 : kv_head);
  to.values_flagged = context.flags[at(value_idx)] != 0;
  for (int c = 0; c < kernels::kTileChunks; ++c) {
    to.keys[c] = context.packed_keys.data() + key_idx * sizes.keys +
                 static_cast<std::ptrdiff_t>(c) * kernels::kChunkKeys * call.spec->heads.qk_head_dim;
    to.values[c] = context.packed_values.data() + value_idx * sizes.values +
                   static_cast<std::ptrdiff_t>(c) * kernels::kChunkKeys * call.padded_v_dim;
  }
}

// bf16 neighbours [num_pairs][16][2] to f32 [2 num_pairs][16]: dims of a chunk of keys, tokens of values.
void widen_pairs(const Bf16* from, int num_pairs, float* to) {
  for (int p = 0; p < num_pairs; ++p, from += 2 * kPageLanes, to += 2 * kPageLanes) {
    std::uint32_t both[kPageLanes];
    std::memcpy(both, from, sizeof(both));
    for (int i = 0; i < kPageLanes; ++i) {
      to[i] = std::bit_cast<float>(both[i] << 16);
      to[kPageLanes + i] = std::bit_cast<float>(both[i] & 0xffff0000U);
    }
  }
}

// Keys of one chunk of a page, widened and rotated to [dim][16].
void widen_keys(const AttentionCall& call, const KvView& view, const void* keys, std::int64_t slot,
                std::int64_t rope_row, bool rotates, float* to) {
  const int dims = view.layout.qk_head_dim;
  const int first = static_cast<int>(slot % view.layout.page_size);
  const auto chunk = view.layout.key_offset(view.key_type, first, 0);
  if (view.key_type == StorageType::kF32) {
    std::copy_n(static_cast<const float*>(keys) + chunk, dims * kernels::kChunkKeys, to);
  } else {
    const Bf16* pairs = static_cast<const Bf16*>(keys) + chunk;
    widen_pairs(pairs, dims / 2, to);
    if (dims % 2 != 0) {  // the last dim has an empty neighbour
      float last[2 * kernels::kChunkKeys];
      widen_pairs(pairs + static_cast<std::ptrdiff_t>(dims - 1) * kernels::kChunkKeys, 1, last);
      std::copy_n(last, kernels::kChunkKeys,
                  to + static_cast<std::ptrdiff_t>(dims - 1) * kernels::kChunkKeys);
    }
  }
  if (!rotates) return;
  const RopeTable& rope = call.context->kv_rope;
  for (int t = 0; t < kernels::kChunkKeys && slot + t < view.num_slots; ++t) {
    kernels::rotate_head(rope.pairs(), rope.cos(rope_row + t), rope.sin(rope_row + t), to + t,
                         kernels::kChunkKeys, to + t, kernels::kChunkKeys);
  }
}

// Values of one chunk of a page, widened to [padded_v_dim / 16][16][16].
void widen_values(const KvView& view, const void* values, std::int64_t slot, int padded_v_dim, float* to) {
  const int first = static_cast<int>(slot % view.layout.page_size);
  const Bf16* pairs = static_cast<const Bf16*>(values) + view.layout.value_offset(view.value_type, first, 0);
  widen_pairs(pairs, padded_v_dim / 2, to);
}

void page_operands(const ForwardCall& call, const KeyStream& stream, std::int64_t tile, int kv_head,
                   ThreadScratch& scratch, TileOperands& to) {
  const KvView& view = call.paged->views[at(stream.sequence)];
  const int page_size = view.layout.page_size;
  const bool rotates = call.context->kv_rope.active() && view.stage == CacheStage::kBeforeRotation;
  const bool plain_keys = view.key_type == StorageType::kF32 && !rotates;
  const bool plain_values = view.value_type == StorageType::kF32;
  int last_stored = -1;
  for (int c = 0; c < kernels::kTileChunks; ++c) {
    const std::int64_t slot = stream.tiles[at(tile)] * kTileKeys + c * kernels::kChunkKeys;
    if (slot >= view.num_slots) break;
    const KvPage& page = view.page(slot / page_size, kv_head);
    if (page.keys == nullptr) continue;
    to.values_flagged = to.values_flagged || page.values_flagged;
    const auto first = static_cast<int>(slot % page_size);
    if (plain_keys) {
      to.keys[c] = static_cast<const float*>(page.keys) + view.layout.key_offset(StorageType::kF32, first, 0);
    } else {
      float* chunk = scratch.keys.data() +
                     static_cast<std::ptrdiff_t>(c) * kernels::kChunkKeys * view.layout.qk_head_dim;
      const std::int64_t rope_row = call.plan->slot_offsets[at(stream.sequence)] + slot;
      widen_keys(call, view, page.keys, slot, rope_row, rotates, chunk);
      to.keys[c] = chunk;
    }
    const std::ptrdiff_t value_chunk = static_cast<std::ptrdiff_t>(call.padded_v_dim) * kernels::kChunkKeys;
    if (plain_values) {
      to.values[c] =
          static_cast<const float*>(page.values) + view.layout.value_offset(StorageType::kF32, first, 0);
    } else {
      float* chunk = scratch.values.data() + c * value_chunk;
      widen_values(view, page.values, slot, call.padded_v_dim, chunk);
      to.values[c] = chunk;
    }
    last_stored = c;
  }
  // Freed pages hold no visible key, but a stretch between visible ones may cross them: there any stored
  // chunk serves for the scores, which are replaced, and the careful path skips its values.
  bool stored_before = false;
  for (int c = 0; c < kernels::kTileChunks; ++c) {
    if (to.keys[c] != nullptr) {
      stored_before = true;
      continue;
    }
    to.values_flagged = to.values_flagged || (stored_before && c < last_stored);
    to.keys[c] = to.keys[last_stored];
    to.values[c] = to.values[last_stored];
  }
}

}  // namespace

TileOperands tile_operands(const ForwardCall& call, const KeyStream& stream, std::int64_t tile, int kv_head,
                           ThreadScratch& scratch) {
  TileOperands operands;
  if (stream.in_place) {
    page_operands(call, stream, tile, kv_head, scratch, operands);
  } else {
    packed_operands(call, stream, tile, kv_head, operands);
  }
  return operands;
}

}  // namespace sightline
