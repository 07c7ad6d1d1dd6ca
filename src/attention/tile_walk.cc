#include "attention/tile_walk.h"

#include <algorithm>
#include <bit>

namespace sightline {

namespace {

// Sets bits [begin, end) of a row of 128.
void set_bits(std::uint64_t* words, std::int64_t begin, std::int64_t end) {
  for (int w = 0; w < 2; ++w) {
    const std::int64_t lo = std::max<std::int64_t>(begin - 64 * w, 0);
    const std::int64_t hi = std::min<std::int64_t>(end - 64 * w, 64);
    if (lo >= hi) continue;
    words[w] |= (~std::uint64_t{0} >> (64 - (hi - lo))) << lo;
  }
}

}  // namespace

TileWalk::TileWalk(const KeyStream& stream, const WorkItem& item, std::int32_t* cursors)
    : stream_(&stream),
      cursors_(cursors),
      q_begin_(item.q_begin),
      q_end_(item.q_end),
      tile_end_(item.tile_end),
      tile_(item.tile_begin - 1) {
  runs_ = stream.map.runs(item.q_begin / stream.map.tile().q);
  std::fill_n(cursors_, q_end_ - q_begin_, 0);
}

bool TileWalk::next() {
  ++tile_;
  while (run_ < runs_.size() && tile_ >= runs_[run_].kv_tile_end) ++run_;
  if (run_ == runs_.size()) return false;
  tile_ = std::max(tile_, runs_[run_].kv_tile_begin);
  return tile_ < tile_end_;
}

bool is_whole(const VisibilityMap& map, const TileRun& run, std::int64_t tile) {
  return run.kind == TileKind::kFull && (tile + 1) * kTileKeys <= map.num_kv();
}

bool TileWalk::full() const { return is_whole(stream_->map, runs_[run_], tile_); }

void visible_keys(const VisibilityMap& map, const TileRun& run, std::int64_t tile, std::int64_t q,
                  std::int32_t& cursor, std::uint64_t* words) {
  const std::int64_t first_key = tile * kTileKeys;
  words[0] = words[1] = 0;
  if (run.kind == TileKind::kFull) {
    set_bits(words, 0, std::min<std::int64_t>(kTileKeys, map.num_kv() - first_key));
  } else if (run.kind == TileKind::kPartialBits) {
    const BitRow& bits = map.bits(run.bits_idx)[static_cast<std::size_t>(q % map.tile().q)];
    words[0] = bits.words[0];
    words[1] = bits.words[1];
  } else {
    const auto ranges = map.ranges(q);
    while (static_cast<std::size_t>(cursor) < ranges.size() &&
           ranges[static_cast<std::size_t>(cursor)].end <= first_key) {
      ++cursor;
    }
    for (auto i = static_cast<std::size_t>(cursor);
         i < ranges.size() && ranges[i].begin < first_key + kTileKeys; ++i) {
      set_bits(words, std::max(ranges[i].begin - first_key, std::int64_t{0}),
               std::min<std::int64_t>(ranges[i].end - first_key, kTileKeys));
    }
  }
}

void TileWalk::visible(std::uint64_t* words) {
  for (std::int32_t q = q_begin_; q < q_end_; ++q) {
    visible_keys(stream_->map, runs_[run_], tile_, q, cursors_[q - q_begin_], words + 2 * (q - q_begin_));
  }
}

void spread_words(const WorkItem& item, const std::uint64_t* query_words, std::uint64_t* words) {
  for (int row = 0; row < item.num_rows(); ++row) {
    std::copy_n(query_words + 2 * (row / item.num_heads()), 2, words + 2 * row);
  }
}

std::int64_t trim_groups(int num_rows, const std::uint64_t* words, kernels::GroupRange* groups) {
  std::int64_t pairs = 0;
  for (int row = 0; row < num_rows; row += kernels::kGroupRows) {
    const int rows = std::min(kernels::kGroupRows, num_rows - row);
    std::uint64_t any[2] = {0, 0};
    std::uint64_t all[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    for (int r = row; r < row + rows; ++r) {
      for (int w = 0; w < 2; ++w) {
        any[w] |= words[2 * r + w];
        all[w] &= words[2 * r + w];
      }
    }
    kernels::GroupRange& group = groups[row / kernels::kGroupRows];
    group = {};
    if ((any[0] | any[1]) == 0) continue;
    const int first = any[0] != 0 ? std::countr_zero(any[0]) : 64 + std::countr_zero(any[1]);
    const int last = any[1] != 0 ? 127 - std::countl_zero(any[1]) : 63 - std::countl_zero(any[0]);
    group.key_begin = static_cast<std::int16_t>(first);
    group.key_end = static_cast<std::int16_t>(last + 1);
    group.chunk_begin = static_cast<std::int16_t>(first / kernels::kChunkKeys);
    group.chunk_end = static_cast<std::int16_t>(last / kernels::kChunkKeys + 1);
    std::uint64_t needed[2] = {0, 0};
    set_bits(needed, group.chunk_begin * kernels::kChunkKeys, group.chunk_end * kernels::kChunkKeys);
    group.all_visible = (all[0] & needed[0]) == needed[0] && (all[1] & needed[1]) == needed[1];
    pairs += static_cast<std::int64_t>(rows) * (group.chunk_end - group.chunk_begin) * kernels::kChunkKeys;
  }
  return pairs;
}

bool has_unseen_pairs(int num_rows, const kernels::GroupRange* groups) {
  const int num_groups = (num_rows + kernels::kGroupRows - 1) / kernels::kGroupRows;
  return std::any_of(groups, groups + num_groups, [](const kernels::GroupRange& g) {
    return g.chunk_begin < g.chunk_end && !g.all_visible;
  });
}

}  // namespace sightline
