// The two products of attention on one tile of 128 keys: scores = q k^T and out += p v.
#pragma once

#include "kernels/vec-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

inline constexpr int kTileVecs = kTileKeys / kLanes;
inline constexpr int kChunkVecs = kChunkKeys / kLanes;

// Where vector `vec_idx` of the tile begins, for pages of any multiple of 16 tokens.
HWY_INLINE const float* key_vector(const ScoreArgs& args, int vec_idx) {
  return args.keys[vec_idx / kChunkVecs] + (vec_idx % kChunkVecs) * kLanes;
}

template <int kRows, int kVecs>
HWY_INLINE void score_block(const ScoreArgs& args, const float* q, int vec_idx, float* scores) {
  Vec acc[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = zero();
  }
  const float* keys[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) keys[v] = key_vector(args, vec_idx + v);
#pragma GCC unroll 4
  for (int dim = 0; dim < args.qk_head_dim; ++dim) {
    Vec k[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) k[v] = load(keys[v] + dim * kChunkKeys);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Vec value = broadcast(q[dim * kGroupRows + r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(value, k[v], acc[r][v]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc[r][v], scores + r * kTileKeys + (vec_idx + v) * kLanes);
  }
}

// One group against vectors [begin, end) of the tile, of which at most kVecs at a time.
template <int kRows, int kVecs>
HWY_NOINLINE void score_group(const ScoreArgs& args, const float* q, int begin, int end, float* scores) {
  int vec_idx = begin;
  for (; vec_idx + kVecs <= end; vec_idx += kVecs) {
    score_block<kRows, kVecs>(args, q, vec_idx, scores);
  }
  for (; vec_idx < end; ++vec_idx) score_block<kRows, 1>(args, q, vec_idx, scores);
}

// Calls f.template operator()<rows, vecs>(first row) for slices that cover num_rows rows (rounded up).
template <typename F>
HWY_INLINE void for_row_slices(int num_rows, F f) {
  constexpr int kSmallVecs = kMaxRows == 12 ? 4 : 2;
  for (int row = 0; row < num_rows; row += kMaxRows) {
    const int left = num_rows - row;
    if (kMaxRows == 12 && left > 8) {
      f.template operator()<kMaxRows, 2>(row);
    } else if (kMaxRows == 12 && left > 6) {
      f.template operator()<kMaxRows == 12 ? 8 : 6, 2>(row);
    } else if (left > 4) {
      f.template operator()<6, kSmallVecs>(row);
    } else if (left > 3) {
      f.template operator()<4, kSmallVecs>(row);
    } else if (left > 2) {
      f.template operator()<3, kSmallVecs>(row);
    } else if (left > 1) {
      f.template operator()<2, 4>(row);
    } else {
      f.template operator()<1, 4>(row);
    }
  }
}

static void attention_scores(const ScoreArgs& args) {
  const int num_groups = (args.num_rows + kGroupRows - 1) / kGroupRows;
  // A panel of keys stays in the first cache while the groups pass by.
  const int panel = num_groups > 1 ? 2 : kTileVecs;
  for (int first = 0; first < kTileVecs; first += panel) {
    for (int g = 0; g < num_groups; ++g) {
      const GroupRange& range = args.groups[g];
      const int group_begin = range.chunk_begin * kChunkVecs;
      const int group_end = range.chunk_end * kChunkVecs;
      const int begin = first < group_begin ? group_begin : first;
      const int end = first + panel < group_end ? first + panel : group_end;
      if (begin >= end) continue;
      const int rows = args.num_rows - g * kGroupRows;
      const float* q = args.q + static_cast<std::ptrdiff_t>(g) * kGroupRows * args.qk_head_dim;
      float* scores = args.scores + static_cast<std::ptrdiff_t>(g) * kGroupRows * kTileKeys;
      for_row_slices(rows < kGroupRows ? rows : kGroupRows, [&]<int kRows, int kVecs>(int row) {
        score_group<kRows, kVecs>(args, q + row, begin, end, scores + row * kTileKeys);
      });
    }
  }
}

inline constexpr int kBlockColumns = 16;  // columns of values that lie together, for the 16 keys of a chunk

// The first key's values of a chunk, from `column` on.
HWY_INLINE const float* value_vector(const ValueArgs& args, int chunk, int column) {
  return args.values[chunk] + (column / kBlockColumns) * (kBlockColumns * kChunkKeys) +
         column % kBlockColumns;
}

template <int kRows, int kVecs>
HWY_INLINE void value_block(const ValueArgs& args, const GroupRange& range, int first_row, int column) {
  const float* p = args.p + static_cast<std::ptrdiff_t>(first_row) * kTileKeys;
  float* out = args.out + static_cast<std::ptrdiff_t>(first_row) * args.padded_v_dim + column;
  const std::ptrdiff_t stride = args.padded_v_dim;
  Vec acc[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
    const Vec rescale = broadcast(args.rescale[first_row + r]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Mul(load(out + r * stride + v * kLanes), rescale);
  }
  int key = range.key_begin;
  while (key < range.key_end) {
    const int chunk = key / kChunkKeys;
    const int chunk_end = (chunk + 1) * kChunkKeys;
    const int end = chunk_end < range.key_end ? chunk_end : range.key_end;
    const float* value[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      value[v] = value_vector(args, chunk, column + v * kLanes) + (key % kChunkKeys) * kBlockColumns;
    }
#pragma GCC unroll 4
    for (; key < end; ++key) {
      Vec w[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        w[v] = load(value[v]);
        value[v] += kBlockColumns;
      }
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const Vec weight = broadcast(p[r * kTileKeys + key]);
#pragma GCC unroll 4
        for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(weight, w[v], acc[r][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc[r][v], out + r * stride + v * kLanes);
  }
}

template <int kRows, int kVecs>
HWY_NOINLINE void value_group(const ValueArgs& args, const GroupRange& range, int first_row, int begin,
                              int end) {
  int column = begin;
  for (; column + kVecs * kLanes <= end; column += kVecs * kLanes) {
    value_block<kRows, kVecs>(args, range, first_row, column);
  }
  for (; column < end; column += kLanes) value_block<kRows, 1>(args, range, first_row, column);
}

// Only visible pairs are added; skipping a pair gives the bits that adding its exact zero gives.
static void careful_values(const ValueArgs& args, const GroupRange& range, int row) {
  const std::uint64_t* words = args.words + 2 * row;
  float* out = args.out + static_cast<std::ptrdiff_t>(row) * args.padded_v_dim;
  const float* p = args.p + static_cast<std::ptrdiff_t>(row) * kTileKeys;
  for (int column = 0; column < args.padded_v_dim; column += kLanes) {
    Vec acc = hn::Mul(load(out + column), broadcast(args.rescale[row]));
    for (int key = range.key_begin; key < range.key_end; ++key) {
      if ((words[key / 64] >> (key % 64) & 1) == 0) continue;
      const float* value = value_vector(args, key / kChunkKeys, column) + key % kChunkKeys * kBlockColumns;
      acc = hn::MulAdd(broadcast(p[key]), load(value), acc);
    }
    store(acc, out + column);
  }
}

static void attention_values(const ValueArgs& args) {
  const int num_groups = (args.num_rows + kGroupRows - 1) / kGroupRows;
  const int panel = num_groups > 1 && args.words == nullptr ? 2 * kLanes : args.padded_v_dim;
  for (int column = 0; column < args.padded_v_dim; column += panel) {
    const int column_end = column + panel < args.padded_v_dim ? column + panel : args.padded_v_dim;
    for (int g = 0; g < num_groups; ++g) {
      const GroupRange& range = args.groups[g];
      if (range.chunk_begin >= range.chunk_end) continue;
      const int rows =
          args.num_rows - g * kGroupRows < kGroupRows ? args.num_rows - g * kGroupRows : kGroupRows;
      if (args.words != nullptr && !range.all_visible) {
        for (int r = 0; r < rows; ++r) careful_values(args, range, g * kGroupRows + r);
        continue;
      }
      for_row_slices(rows, [&]<int kRows, int kVecs>(int row) {
        value_group<kRows, kVecs>(args, range, g * kGroupRows + row, column, column_end);
      });
    }
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
