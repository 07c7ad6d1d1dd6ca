#include "attention/tile_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sightline/base/half.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

float element(const void* data, StorageType type, std::size_t offset) {
  return type == StorageType::kF32 ? static_cast<const float*>(data)[offset]
                                   : to_f32(static_cast<const Bf16*>(data)[offset]);
}

}  // namespace

const float* read_key(const AttentionCall& call, const KeyStream& stream, std::int64_t row, int head,
                      float* buffer) {
  const int dims = call.spec->heads.qk_head_dim;
  bool rotates = call.context->kv_rope.active();
  std::int64_t rope_row = row;
  if (call.contiguous != nullptr) {
    const auto& k = call.contiguous->k;
    const float* from = k.data + row * k.strides[0] + head * k.strides[1];
    if (k.strides[2] == 1 && !rotates) return from;
    gather_row(from, k.strides[2], dims, buffer);
  } else {
    const KvView& view = call.paged->views[at(stream.sequence)];
    const int page_size = view.layout.page_size;
    const void* keys = view.page(row / page_size, head).keys;
    for (int i = 0; i < dims; ++i) {
      const auto offset = view.layout.key_offset(view.key_type, static_cast<int>(row % page_size), i);
      buffer[i] = element(keys, view.key_type, offset);
    }
    rotates = rotates && view.stage == CacheStage::kBeforeRotation;
    rope_row += call.plan->slot_offsets[at(stream.sequence)];
  }
  if (rotates) {
    const RopeTable& rope = call.context->kv_rope;
    kernels::rotate_head(rope.pairs(), rope.cos(rope_row), rope.sin(rope_row), buffer, 1, buffer, 1);
  }
  return buffer;
}

const float* read_value(const AttentionCall& call, const KeyStream& stream, std::int64_t row, int head,
                        float* buffer) {
  const int dims = call.spec->heads.v_head_dim;
  if (call.contiguous != nullptr) {
    const auto& v = call.contiguous->v;
    const float* from = v.data + row * v.strides[0] + head * v.strides[1];
    if (v.strides[2] == 1) return from;
    gather_row(from, v.strides[2], dims, buffer);
    return buffer;
  }
  const KvView& view = call.paged->views[at(stream.sequence)];
  const int page_size = view.layout.page_size;
  const void* values = view.page(row / page_size, head).values;
  for (int i = 0; i < dims; ++i) {
    const auto offset = view.layout.value_offset(view.value_type, static_cast<int>(row % page_size), i);
    buffer[i] = element(values, view.value_type, offset);
  }
  return buffer;
}

void gather_tile(const AttentionCall& call, const KeyStream& stream, std::int64_t tile, int head, int dims,
                 decltype(read_key)* read, float* buffer, const float** rows) {
  const std::int64_t* key_rows = stream.key_rows.data() + tile * kTileKeys;
  for (int t = 0; t < kTileKeys; ++t, buffer += dims) {
    if (key_rows[t] >= 0) {
      rows[t] = read(call, stream, key_rows[t], head, buffer);
    } else {
      std::fill_n(buffer, dims, 0.0F);
      rows[t] = buffer;
    }
  }
}

void rows_to_keys(const kernels::KernelTable& table, const float* const* rows, int dims, float* to) {
  for (int t = 0; t < kTileKeys; t += kernels::kChunkKeys) {
    table.pack_columns(rows + t, kernels::kChunkKeys, dims, to + static_cast<std::ptrdiff_t>(t) * dims);
  }
}

void rows_to_values(const float* const* rows, int dims, float* to) {
  const PageLayout layout{.page_size = kTileKeys, .v_head_dim = dims};
  for (int t = 0; t < kTileKeys; ++t) {
    for (int i = 0; i < layout.padded_v_dim(); i += kPageLanes) {
      float* block = to + layout.value_offset(StorageType::kF32, t, i);
      const int count = std::min(dims - i, kPageLanes);
      if (count == kPageLanes) {
        std::memcpy(block, rows[t] + i, kPageLanes * sizeof(float));  // a size the compiler knows
      } else {
        std::copy_n(rows[t] + i, count, block);
        std::fill(block + count, block + kPageLanes, 0.0F);
      }
    }
  }
}

bool all_finite(const float* data, std::int64_t count) {
  unsigned flagged = 0;  // by exponent bits, so that the loop is vectors and not a chain
  for (std::int64_t i = 0; i < count; ++i) {
    flagged |= (std::bit_cast<std::uint32_t>(data[i]) & 0x7f800000U) == 0x7f800000U ? 1U : 0U;
  }
  return flagged == 0;
}

}  // namespace sightline
