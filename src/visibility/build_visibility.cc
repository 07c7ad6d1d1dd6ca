#include "visibility/build_visibility.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "sightline/base/rng.h"

namespace sightline {

namespace {

// Ranges a query may have on average before its tile takes the bit path: a few, and one more for each key
// tile that it touches (a bit row costs as much memory as one range).
constexpr std::size_t kFreeRanges = 4;

std::uint64_t hash_rows(std::span<const BitRow> rows) {
  std::uint64_t hash = 0;
  for (const BitRow& row : rows) hash = mix64(mix64(hash ^ row.words[0]) ^ row.words[1]);
  return hash;
}

void intersect(std::vector<KeyRange>& a, std::span<const KeyRange> b, std::vector<KeyRange>& scratch) {
  scratch.clear();
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const KeyRange both{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (both.begin < both.end) scratch.push_back(both);
    ++(a[i].end < b[j].end ? i : j);
  }
  a.swap(scratch);
}

void unite(std::vector<KeyRange>& a, std::span<const KeyRange> b, std::vector<KeyRange>& scratch) {
  scratch.clear();
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool take_a = j == b.size() || (i < a.size() && a[i].begin <= b[j].begin);
    const KeyRange next = take_a ? a[i++] : b[j++];
    if (!scratch.empty() && next.begin <= scratch.back().end) {
      scratch.back().end = std::max(scratch.back().end, next.end);
    } else {
      scratch.push_back(next);
    }
  }
  a.swap(scratch);
}

}  // namespace

class VisibilityMapBuilder {
 public:
  VisibilityMapBuilder(const VisibilityInput& input, const KeyStretches& stretches)
      : program_(input, stretches) {
    map_.num_q_ = static_cast<std::int64_t>(input.q.size());
    map_.num_kv_ = static_cast<std::int64_t>(input.kv.size());
    map_.tile_ = input.tile;
  }

  VisibilityMap build(VisibilityPath path) {
    const bool by_ranges = path == VisibilityPath::kAuto && program_.has_ranges();
    for (std::int64_t q_begin = 0; q_begin < map_.num_q_; q_begin += map_.tile_.q) {
      const std::int64_t q_end = std::min(q_begin + map_.tile_.q, map_.num_q_);
      if (!by_ranges || !add_range_tile(q_begin, q_end)) add_bit_tile(q_begin, q_end);
      map_.run_offsets_.push_back(static_cast<std::int64_t>(map_.runs_.size()));
    }
    map_.runs_.shrink_to_fit();
    map_.ranges_.shrink_to_fit();
    map_.bits_.shrink_to_fit();
    return std::move(map_);
  }

 private:
  void add_run(std::int64_t kv_tile, std::int64_t kv_tile_end, TileKind kind, std::int32_t bits_idx) {
    if (kv_tile >= kv_tile_end) return;
    const auto begin = static_cast<std::int32_t>(kv_tile);
    const auto end = static_cast<std::int32_t>(kv_tile_end);
    const bool first_of_tile = static_cast<std::int64_t>(map_.runs_.size()) == map_.run_offsets_.back();
    if (!first_of_tile && kind != TileKind::kPartialBits && map_.runs_.back().kind == kind &&
        map_.runs_.back().kv_tile_end == begin) {
      map_.runs_.back().kv_tile_end = end;
    } else {
      map_.runs_.push_back({begin, end, kind, bits_idx});
    }
  }

  // False, with the map as it was, when the ranges are too many.
  bool add_range_tile(std::int64_t q_begin, std::int64_t q_end) {
    const std::size_t ranges_before = map_.ranges_.size();
    const std::size_t offsets_before = map_.range_offsets_.size();
    for (std::int64_t q = q_begin; q < q_end; ++q) {
      program_.append_ranges(q, map_.ranges_);
      map_.range_offsets_.push_back(static_cast<std::int64_t>(map_.ranges_.size()));
    }
    any_.clear();
    every_.assign(1, {0, map_.num_kv_});
    for (std::int64_t q = q_begin; q < q_end; ++q) {
      const auto ranges = map_.ranges(q);
      if (q > q_begin && std::ranges::equal(ranges, map_.ranges(q - 1))) continue;
      unite(any_, ranges, scratch_);
      intersect(every_, ranges, scratch_);
    }
    const std::size_t num_ranges = map_.ranges_.size() - ranges_before;
    const auto rows = static_cast<std::size_t>(q_end - q_begin);
    if (num_ranges > rows * (kFreeRanges + touched_tiles())) {
      map_.ranges_.resize(ranges_before);
      map_.range_offsets_.resize(offsets_before);
      return false;
    }
    for (std::size_t i = ranges_before; i < map_.ranges_.size(); ++i) {
      map_.num_visible_pairs_ += map_.ranges_[i].end - map_.ranges_[i].begin;
    }
    add_range_runs();
    return true;
  }

  [[nodiscard]] std::size_t touched_tiles() const {
    std::int64_t tiles = 0;
    std::int64_t from = 0;  // tiles below are counted
    for (const KeyRange& range : any_) {
      const std::int64_t begin = std::max(from, range.begin / map_.tile_.kv);
      from = std::max(begin, (range.end - 1) / map_.tile_.kv + 1);
      tiles += from - begin;
    }
    return static_cast<std::size_t>(tiles);
  }

  // Tiles that some query sees, cut at those that every query sees whole.
  void add_range_runs() {
    const std::int64_t width = map_.tile_.kv;
    std::int64_t from = 0;  // tiles below are done
    std::size_t full = 0;
    for (const KeyRange& range : any_) {
      const std::int64_t end = (range.end - 1) / width + 1;
      from = std::max(from, range.begin / width);
      while (from < end) {
        while (full < every_.size() && full_tiles(every_[full]).end <= from) ++full;
        const KeyRange next = full < every_.size() ? full_tiles(every_[full]) : KeyRange{end, end};
        const std::int64_t partial_end = std::clamp(next.begin, from, end);
        add_run(from, partial_end, TileKind::kPartialRanges, -1);
        const std::int64_t full_end = std::clamp(next.end, partial_end, end);
        add_run(partial_end, full_end, TileKind::kFull, -1);
        from = full_end;
      }
    }
  }

  // Key tiles that lie wholly within a range; the last tile ends with the keys. Empty: begin >= end.
  [[nodiscard]] KeyRange full_tiles(const KeyRange& range) const {
    const std::int64_t width = map_.tile_.kv;
    const std::int64_t end = range.end == map_.num_kv_ ? (range.end + width - 1) / width : range.end / width;
    return {(range.begin + width - 1) / width, end};
  }

  void add_bit_tile(std::int64_t q_begin, std::int64_t q_end) {
    map_.range_offsets_.resize(static_cast<std::size_t>(q_end) + 1,
                               static_cast<std::int64_t>(map_.ranges_.size()));
    rows_.assign(static_cast<std::size_t>(map_.tile_.q), {});
    const std::int64_t width = map_.tile_.kv;
    for (std::int64_t kv_tile = 0; kv_tile * width < map_.num_kv_; ++kv_tile) {
      std::int64_t visible = 0;
      for (std::int64_t q = q_begin; q < q_end; ++q) {
        BitRow& row = rows_[static_cast<std::size_t>(q - q_begin)];
        row = program_.bits(q, kv_tile);
        visible += std::popcount(row.words[0]) + std::popcount(row.words[1]);
      }
      if (visible == 0) continue;
      map_.num_visible_pairs_ += visible;
      const std::int64_t keys = std::min(width, map_.num_kv_ - kv_tile * width);
      if (visible == keys * (q_end - q_begin)) {
        add_run(kv_tile, kv_tile + 1, TileKind::kFull, -1);
      } else {
        add_run(kv_tile, kv_tile + 1, TileKind::kPartialBits, store_rows());
      }
    }
  }

  // The index of a tile equal to rows_, stored now or before.
  std::int32_t store_rows() {
    const std::uint64_t hash = hash_rows(rows_);
    const auto [begin, end] = stored_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
      if (std::ranges::equal(map_.bits(at->second), rows_)) return at->second;
    }
    const auto bits_idx = static_cast<std::int32_t>(map_.num_bit_tiles());
    map_.bits_.insert(map_.bits_.end(), rows_.begin(), rows_.end());
    stored_.emplace(hash, bits_idx);
    return bits_idx;
  }

  MaskProgram program_;
  VisibilityMap map_;
  std::vector<KeyRange> any_, every_, scratch_;  // of the query tile: seen by some query, by every query
  std::vector<BitRow> rows_;
  std::unordered_multimap<std::uint64_t, std::int32_t> stored_;
};

namespace {

Result<void> check_rows(const char* name, std::span<const std::int64_t> row_idx, std::size_t num_tokens) {
  if (!row_idx.empty() && row_idx.size() != num_tokens) {
    return fail(ErrorKind::kInvalidArgument, "build_visibility: {} has {} entries, expected {} or none", name,
                row_idx.size(), num_tokens);
  }
  for (std::size_t i = 0; i < row_idx.size(); ++i) {
    if (row_idx[i] < 0) {
      return fail(ErrorKind::kInvalidArgument, "build_visibility: {}[{}] = {}, expected 0 or more", name, i,
                  row_idx[i]);
    }
  }
  return {};
}

// Rows that the tables must have.
std::int64_t num_rows(std::span<const std::int64_t> row_idx, std::size_t num_tokens) {
  if (row_idx.empty()) return static_cast<std::int64_t>(num_tokens);
  return *std::max_element(row_idx.begin(), row_idx.end()) + 1;
}

Result<void> check_input(const VisibilityInput& input) {
  SIGHTLINE_CHECK(validate(input.mask));
  if (input.tile.q < 1 || input.tile.q > 1024 || input.tile.kv != 128) {
    return fail(ErrorKind::kInvalidArgument,
                "build_visibility: tile is {} x {}, expected 1 to 1024 queries x 128 keys", input.tile.q,
                input.tile.kv);
  }
  if (input.kv.size() / 128 >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    return fail(ErrorKind::kInvalidArgument, "build_visibility: {} keys are too many for 2^31 tiles",
                input.kv.size());
  }
  if (uses(input.mask, MaskOp::kDense) || uses(input.mask, MaskOp::kTree)) {
    SIGHTLINE_CHECK(check_rows("q_row_idx", input.q_row_idx, input.q.size()));
    SIGHTLINE_CHECK(check_rows("kv_row_idx", input.kv_row_idx, input.kv.size()));
    SIGHTLINE_CHECK(validate_tables(input.mask, input.tables, num_rows(input.q_row_idx, input.q.size()),
                                    num_rows(input.kv_row_idx, input.kv.size())));
  }
  for (std::size_t i = 0; i < input.q.size(); ++i) {
    const TokenCoord& q = input.q[i];
    if (q.valid && (std::max(q.pos, q.segment_start) > kMaxPosition ||
                    std::min(q.pos, q.segment_start) < -kMaxPosition)) {
      return fail(ErrorKind::kInvalidArgument,
                  "build_visibility: query {} has position {} and segment start {}, expected within 2^60", i,
                  q.pos, q.segment_start);
    }
  }
  return {};
}

}  // namespace

Result<VisibilityMap> build_visibility_by(const VisibilityInput& input, VisibilityPath path) {
  SIGHTLINE_CHECK(check_input(input));
  SIGHTLINE_TRY(const KeyStretches stretches,
                KeyStretches::build(input.mask, input.tables, input.kv, input.kv_row_idx));
  return VisibilityMapBuilder(input, stretches).build(path);
}

Result<VisibilityMap> build_visibility(const MaskSpec& mask, const MaskTables& tables,
                                       std::span<const TokenCoord> q, std::span<const TokenCoord> kv,
                                       std::span<const std::int64_t> q_row_idx,
                                       std::span<const std::int64_t> kv_row_idx, TileShape tile) {
  return build_visibility_by({mask, tables, q, kv, q_row_idx, kv_row_idx, tile}, VisibilityPath::kAuto);
}

std::size_t VisibilityMap::bytes() const {
  return sizeof(*this) + runs_.capacity() * sizeof(TileRun) + run_offsets_.capacity() * sizeof(std::int64_t) +
         ranges_.capacity() * sizeof(KeyRange) + range_offsets_.capacity() * sizeof(std::int64_t) +
         bits_.capacity() * sizeof(BitRow);
}

}  // namespace sightline
