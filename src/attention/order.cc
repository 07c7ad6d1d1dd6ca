// Keys in order of ordinals: which key is added when. Rows, slots and padding end here.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "attention/plan.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct OrderedKey {
  std::int64_t ordinal = 0;
  std::int64_t row = 0;  // row of the call, or slot
  TokenCoord coord;
};

/// Streams of one sequence: a single one, or one a segment that has queries.
class SequenceStreams {
 public:
  SequenceStreams(bool by_segment, std::size_t first_stream) : by_segment_(by_segment), next_(first_stream) {}

  /// The stream of a segment, numbered on from first_stream when it is new.
  std::size_t find_or_add(std::int32_t segment) {
    const auto [found, added] = streams_.try_emplace(by_segment_ ? segment : 0, next_);
    if (added) ++next_;
    return found->second;
  }
  /// The stream whose queries read a key of this segment; none when nobody does.
  [[nodiscard]] std::optional<std::size_t> find(std::int32_t segment) const {
    const auto found = streams_.find(by_segment_ ? segment : 0);
    if (found == streams_.end()) return std::nullopt;
    return found->second;
  }

 private:
  bool by_segment_;
  std::size_t next_;
  std::unordered_map<std::int32_t, std::size_t> streams_;
};

// Queries of one sequence into its streams, which are appended to the plan.
SequenceStreams add_queries(const QueryBatch& queries, std::int64_t sequence, bool by_segment,
                            AttentionPlan::Impl& plan) {
  SequenceStreams streams(by_segment, plan.streams.size());
  for (std::int64_t row = queries.q_offsets[at(sequence)]; row < queries.q_offsets[at(sequence) + 1]; ++row) {
    const TokenCoord& coord = queries.coords[at(row)];
    if (!coord.valid) {
      plan.unseeing.push_back(row);
      continue;
    }
    const std::size_t idx = streams.find_or_add(coord.segment);
    if (idx == plan.streams.size()) plan.streams.emplace_back().sequence = sequence;
    plan.streams[idx].q_rows.push_back(row);
    plan.streams[idx].q_coords.push_back(coord);
  }
  return streams;
}

// Lays ascending ordinals out in tiles of 128.
Result<void> fill_tiles(const char* function, std::span<const OrderedKey> keys, std::int64_t num_first,
                        KeyStream& stream) {
  std::int64_t last = -1;
  for (const OrderedKey& key : keys) {
    if (key.ordinal <= last) {
      return fail(ErrorKind::kInvalidArgument,
                  "{}: ordinals: key row {} has ordinal {}, which is negative or taken by another key",
                  function, key.row, key.ordinal);
    }
    last = key.ordinal;
    const std::int64_t tile = key.ordinal / kTileKeys;
    if (stream.tiles.empty() || stream.tiles.back() != tile) {
      stream.tiles.push_back(tile);
      stream.key_rows.resize(stream.key_rows.size() + kTileKeys, -1);
      stream.key_pos.resize(stream.key_pos.size() + kTileKeys, 0);
      if (num_first > 0) stream.first_keys.resize(stream.first_keys.size() + 2, 0);
    }
    const std::int64_t lane = key.ordinal % kTileKeys;
    const std::size_t slot = stream.key_rows.size() - kTileKeys + at(lane);
    stream.key_rows[slot] = key.row;
    stream.key_pos[slot] = static_cast<std::int32_t>(key.coord.pos);
    if (num_first > 0 && key.coord.pos - key.coord.segment_start < num_first) {
      stream.first_keys[stream.first_keys.size() - 2 + at(lane / 64)] |= std::uint64_t{1} << (lane % 64);
    }
  }
  return {};
}

// `rope_pos` empty: equal to pos.
Result<void> check_positions(const char* function, const char* what, std::span<const TokenCoord> coords,
                             std::span<const std::int64_t> rope_pos) {
  for (std::size_t i = 0; i < coords.size(); ++i) {
    const TokenCoord& c = coords[i];
    if (!c.valid) continue;
    if (c.pos < 0 || c.pos > kMaxPos) {
      return fail(ErrorKind::kInvalidArgument, "{}: {}.coords[{}].pos = {}, expected 0 to {}", function, what,
                  i, c.pos, kMaxPos);
    }
    if (!is_coordinate(c.segment_start)) {
      return fail(ErrorKind::kInvalidArgument, "{}: {}.coords[{}].segment_start = {}, expected within 2^53",
                  function, what, i, c.segment_start);
    }
    if (!rope_pos.empty() && !is_coordinate(rope_pos[i])) {
      return fail(ErrorKind::kInvalidArgument, "{}: {}.rope_pos[{}] = {}, expected within 2^53", function,
                  what, i, rope_pos[i]);
    }
  }
  return {};
}

// First keys that meet a second query; 0 when no key does. Also where this spec rotates nothing: the plan
// serves every layer with its mask and position policy.
std::int64_t num_first_keys(const AttentionSpec& spec) {
  return spec.rope.position_policy == PositionPolicy::kInCache ? reach_back(spec.mask).num_first : 0;
}

void add_packed_stream(std::int32_t stream_idx, AttentionPlan::Impl& plan) {
  KeyStream& stream = plan.streams[at(stream_idx)];
  if (stream.tiles.empty()) return;
  stream.packed_tile = plan.num_packed_tiles;
  plan.num_packed_tiles += stream.num_tiles();
  plan.packed_streams.push_back(stream_idx);
}

bool by_ordinal(const OrderedKey& a, const OrderedKey& b) { return a.ordinal < b.ordinal; }
bool by_pos(const OrderedKey& a, const OrderedKey& b) { return a.coord.pos < b.coord.pos; }

}  // namespace

Result<void> order_contiguous(const AttentionSpec& spec, const QueryBatch& queries, const ContiguousKv& kv,
                              AttentionPlan::Impl& plan) {
  constexpr const char* kFunction = "plan_attention";
  SIGHTLINE_CHECK(check_positions(kFunction, "queries", queries.coords, queries.rope_pos));
  SIGHTLINE_CHECK(check_positions(kFunction, "kv", kv.coords, kv.rope_pos));
  const bool by_segment = implies_segment(spec.mask);
  const std::int64_t num_first = num_first_keys(spec);
  std::vector<std::vector<OrderedKey>> keys_of;  // by stream of the sequence
  for (std::int64_t s = 0; s < plan.num_sequences; ++s) {
    const std::size_t first_stream = plan.streams.size();
    const SequenceStreams streams = add_queries(queries, s, by_segment, plan);
    keys_of.assign(plan.streams.size() - first_stream, {});
    for (std::int64_t row = kv.kv_offsets[at(s)]; row < kv.kv_offsets[at(s) + 1]; ++row) {
      const TokenCoord& coord = kv.coords[at(row)];
      if (!coord.valid) continue;
      const auto stream = streams.find(coord.segment);
      if (!stream) continue;
      keys_of[*stream - first_stream].push_back({kv.ordinals.empty() ? 0 : kv.ordinals[at(row)], row, coord});
    }
    for (std::size_t i = first_stream; i < plan.streams.size(); ++i) {
      std::vector<OrderedKey>& keys = keys_of[i - first_stream];
      if (kv.ordinals.empty()) {
        if (!std::is_sorted(keys.begin(), keys.end(), by_pos)) {
          std::stable_sort(keys.begin(), keys.end(), by_pos);
        }
        for (std::size_t k = 0; k < keys.size(); ++k) keys[k].ordinal = static_cast<std::int64_t>(k);
      } else if (!std::is_sorted(keys.begin(), keys.end(), by_ordinal)) {
        std::stable_sort(keys.begin(), keys.end(), by_ordinal);
      }
      SIGHTLINE_CHECK(fill_tiles(kFunction, keys, num_first, plan.streams[i]));
      add_packed_stream(static_cast<std::int32_t>(i), plan);
    }
  }
  return {};
}

Result<void> order_paged(const AttentionSpec& spec, const QueryBatch& queries, const PagedKv& kv,
                         AttentionPlan::Impl& plan) {
  constexpr const char* kFunction = "plan_attention";
  SIGHTLINE_CHECK(check_positions(kFunction, "queries", queries.coords, queries.rope_pos));
  const bool by_segment = implies_segment(spec.mask);
  const std::int64_t num_first = num_first_keys(spec);
  std::vector<std::vector<OrderedKey>> keys_of;  // by stream of the sequence
  std::vector<std::int64_t> next_ordinal;
  for (std::int64_t s = 0; s < plan.num_sequences; ++s) {
    const KvView& view = kv.views[at(s)];
    const auto coords = view.coords.first(at(view.num_slots));
    SIGHTLINE_CHECK(check_positions(kFunction, "views", coords, view.rope_pos));
    const std::size_t first_stream = plan.streams.size();
    const SequenceStreams streams = add_queries(queries, s, by_segment, plan);
    keys_of.assign(plan.streams.size() - first_stream, {});
    next_ordinal.assign(keys_of.size(), 0);
    for (std::size_t i = first_stream; i < plan.streams.size(); ++i) plan.streams[i].in_place = true;
    for (std::int64_t slot = 0; slot < view.num_slots; ++slot) {
      const auto stream = streams.find(coords[at(slot)].segment);
      if (!stream) continue;
      // A document counts its own slots, evicted ones too; it stays in place when they are the first ones.
      const std::int64_t ordinal = next_ordinal[*stream - first_stream]++;
      if (ordinal != slot) plan.streams[*stream].in_place = false;
      const bool stored = view.page(slot / view.layout.page_size, 0).keys != nullptr;
      if (!coords[at(slot)].valid || !stored) continue;
      keys_of[*stream - first_stream].push_back({ordinal, slot, coords[at(slot)]});
    }
    for (std::size_t i = first_stream; i < plan.streams.size(); ++i) {
      SIGHTLINE_CHECK(fill_tiles(kFunction, keys_of[i - first_stream], num_first, plan.streams[i]));
      if (!plan.streams[i].in_place) add_packed_stream(static_cast<std::int32_t>(i), plan);
    }
  }
  return {};
}

}  // namespace sightline
