// From spec and coordinates to visibility maps and work items.
#include "attention/plan.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "attention/validate.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Queries of one item: as many as fill kMaxRows with the heads of a group.
int queries_per_item(const HeadSpec& heads) { return std::max(1, kMaxRows / heads.group_size()); }

// What a stream sees, over its tiles; holes are invalid keys.
Result<VisibilityMap> build_map(const AttentionSpec& spec, const MaskTables& tables,
                                std::span<const TokenCoord> coords_by_key, const KeyStream& stream,
                                std::int64_t first_q_row, std::int64_t first_kv_row) {
  std::vector<TokenCoord> kv(stream.key_rows.size());
  const bool needs_rows = uses(spec.mask, MaskOp::kDense) || uses(spec.mask, MaskOp::kTree);
  std::vector<std::int64_t> q_row_idx;
  std::vector<std::int64_t> kv_row_idx;
  if (needs_rows) {
    for (const std::int64_t row : stream.q_rows) q_row_idx.push_back(row - first_q_row);
    kv_row_idx.resize(kv.size(), 0);
  }
  for (std::size_t i = 0; i < kv.size(); ++i) {
    const std::int64_t row = stream.key_rows[i];
    kv[i].valid = row >= 0;
    if (row < 0) continue;
    kv[i] = coords_by_key[at(row)];
    if (needs_rows) kv_row_idx[i] = row - first_kv_row;
  }
  return build_visibility(spec.mask, tables, stream.q_coords, kv, q_row_idx, kv_row_idx,
                          {queries_per_item(spec.heads), kTileKeys});
}

// Tiles of one query tile that hold a visible pair, counted by split.
void add_items(const HeadSpec& heads, std::int32_t stream_idx, std::int64_t q_tile, std::int32_t kv_head,
               AttentionPlan::Impl& plan) {
  const KeyStream& stream = plan.streams[at(stream_idx)];
  std::vector<std::pair<std::int64_t, WorkItem>> splits;  // by split number: tiles and cost
  std::int64_t tiles = 0;
  for (const TileRun& run : stream.map.runs(q_tile)) {
    tiles += run.kv_tile_end - run.kv_tile_begin;
    for (std::int32_t tile = run.kv_tile_begin; tile < run.kv_tile_end; ++tile) {
      const std::int64_t split = stream.tiles[at(tile)] / kSplitTiles;
      if (splits.empty() || splits.back().first != split) {
        splits.emplace_back(split, WorkItem{});
        splits.back().second.tile_begin = tile;
      }
      splits.back().second.tile_end = tile + 1;
      ++splits.back().second.cost;
    }
  }
  for (int head = 0; head < heads.group_size(); head += kMaxRows) {
    WorkItem item = item_rows(plan, stream_idx, q_tile, kv_head, head);
    item.tile_begin = splits.empty() ? 0 : splits.front().second.tile_begin;
    item.tile_end = splits.empty() ? 0 : splits.back().second.tile_end;
    item.cost = tiles * item.num_rows();
    if (item.num_rows() > kMaxPartialRows || splits.size() < 2) {
      plan.items.push_back(item);
      continue;
    }
    MergeItem merge{item, static_cast<std::int32_t>(splits.size())};
    merge.rows.partial = plan.num_partials;
    plan.merges.push_back(merge);
    for (const auto& [split, range] : splits) {
      item.tile_begin = range.tile_begin;
      item.tile_end = range.tile_end;
      item.cost = range.cost * item.num_rows();
      item.partial = plan.num_partials++;
      plan.items.push_back(item);
    }
  }
}

// Heaviest first among the items of one stream and key head, which follow each other: their keys and values
// stay in the second cache. Groups are ordered by their heaviest item, so the last items are light ones.
void order_items(std::vector<WorkItem>& items) {
  const auto same_keys = [](const WorkItem& a, const WorkItem& b) {
    return a.stream == b.stream && a.kv_head == b.kv_head;
  };
  std::vector<std::span<WorkItem>> groups;
  for (auto begin = items.begin(); begin != items.end();) {
    const auto end =
        std::find_if_not(begin, items.end(), [&](const WorkItem& i) { return same_keys(i, *begin); });
    std::stable_sort(begin, end, [](const WorkItem& a, const WorkItem& b) { return a.cost > b.cost; });
    groups.emplace_back(begin, end);
    begin = end;
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](std::span<const WorkItem> a, std::span<const WorkItem> b) {
                     return a.front().cost > b.front().cost;
                   });
  std::vector<WorkItem> ordered;
  ordered.reserve(items.size());
  for (const auto& group : groups) ordered.insert(ordered.end(), group.begin(), group.end());
  items = std::move(ordered);
}

void plan_work(AttentionPlan::Impl& plan) {
  for (std::size_t i = 0; i < plan.streams.size(); ++i) {
    const KeyStream& stream = plan.streams[i];
    for (int kv_head = 0; kv_head < plan.heads.num_kv_heads; ++kv_head) {
      for (std::int64_t q_tile = 0; q_tile < stream.map.num_q_tiles(); ++q_tile) {
        add_items(plan.heads, static_cast<std::int32_t>(i), q_tile, kv_head, plan);
      }
    }
    plan.pairs_visible += stream.map.num_visible_pairs() * plan.heads.num_q_heads;
  }
  order_items(plan.items);
}

MaskTables tables_of(const AttentionExtras& extras, std::int64_t sequence) {
  if (extras.tables.empty()) return {};
  return extras.tables.size() == 1 ? extras.tables.front() : extras.tables[at(sequence)];
}

AttentionPlan::Impl start_plan(const AttentionSpec& spec, const QueryBatch& queries) {
  AttentionPlan::Impl plan;
  plan.heads = spec.heads;
  plan.mask = spec.mask;
  plan.position_policy = spec.rope.position_policy;
  plan.num_sequences = static_cast<std::int64_t>(queries.q_offsets.size()) - 1;
  plan.num_q_tokens = static_cast<std::int64_t>(queries.coords.size());
  plan.q_offsets.assign(queries.q_offsets.begin(), queries.q_offsets.end());
  return plan;
}

}  // namespace

WorkItem item_rows(const AttentionPlan::Impl& plan, std::int32_t stream, std::int64_t q_tile,
                   std::int32_t kv_head, int head) {
  const VisibilityMap& map = plan.streams[at(stream)].map;
  const std::int64_t per_tile = map.tile().q;
  const int group = plan.heads.group_size();
  WorkItem item;
  item.stream = stream;
  item.kv_head = kv_head;
  item.q_begin = static_cast<std::int32_t>(q_tile * per_tile);
  item.q_end = static_cast<std::int32_t>(std::min(map.num_q(), (q_tile + 1) * per_tile));
  item.head_begin = kv_head * group + head;
  item.head_end = kv_head * group + std::min(group, head + kMaxRows);
  return item;
}

Result<AttentionPlan> plan_attention(const AttentionSpec& spec, const QueryBatch& queries,
                                     const ContiguousKv& kv, const AttentionExtras& extras) {
  SIGHTLINE_CHECK(validate_batch("plan_attention", spec, queries, extras));
  SIGHTLINE_CHECK(validate_coords("plan_attention", queries, kv));
  auto plan = std::make_unique<AttentionPlan::Impl>(start_plan(spec, queries));
  plan->num_kv_tokens = static_cast<std::int64_t>(kv.coords.size());
  plan->kv_offsets.assign(kv.kv_offsets.begin(), kv.kv_offsets.end());
  SIGHTLINE_CHECK(order_contiguous(spec, queries, kv, *plan));
  for (KeyStream& stream : plan->streams) {
    SIGHTLINE_TRY(stream.map,
                  build_map(spec, tables_of(extras, stream.sequence), kv.coords, stream,
                            plan->q_offsets[at(stream.sequence)], plan->kv_offsets[at(stream.sequence)]));
  }
  plan_work(*plan);
  return AttentionPlan(std::move(plan));
}

Result<AttentionPlan> plan_attention(const AttentionSpec& spec, const QueryBatch& queries, const PagedKv& kv,
                                     const AttentionExtras& extras) {
  SIGHTLINE_CHECK(validate_batch("plan_attention", spec, queries, extras));
  SIGHTLINE_CHECK(validate_views("plan_attention", spec, queries, kv));
  auto plan = std::make_unique<AttentionPlan::Impl>(start_plan(spec, queries));
  plan->paged = true;
  plan->slot_offsets.push_back(0);
  for (const KvView& view : kv.views) {
    plan->num_slots.push_back(view.num_slots);
    plan->slot_offsets.push_back(plan->slot_offsets.back() + view.num_slots);
  }
  SIGHTLINE_CHECK(order_paged(spec, queries, kv, *plan));
  for (KeyStream& stream : plan->streams) {
    SIGHTLINE_TRY(stream.map,
                  build_map(spec, tables_of(extras, stream.sequence), kv.views[at(stream.sequence)].coords,
                            stream, plan->q_offsets[at(stream.sequence)], 0));
  }
  plan_work(*plan);
  return AttentionPlan(std::move(plan));
}

AttentionPlan::AttentionPlan(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AttentionPlan::AttentionPlan(AttentionPlan&&) noexcept = default;
AttentionPlan& AttentionPlan::operator=(AttentionPlan&&) noexcept = default;
AttentionPlan::~AttentionPlan() = default;

std::size_t AttentionPlan::bytes() const {
  std::size_t bytes = sizeof(Impl) + impl_->items.size() * sizeof(WorkItem) +
                      impl_->merges.size() * sizeof(MergeItem) +
                      (impl_->unseeing.size() + impl_->q_offsets.size() + impl_->kv_offsets.size() +
                       impl_->num_slots.size()) *
                          sizeof(std::int64_t);
  for (const KeyStream& stream : impl_->streams) {
    bytes += sizeof(KeyStream) + stream.q_rows.size() * (sizeof(std::int64_t) + sizeof(TokenCoord)) +
             stream.tiles.size() * sizeof(std::int64_t) +
             stream.key_rows.size() * (sizeof(std::int64_t) + sizeof(std::int32_t)) +
             stream.first_keys.size() * sizeof(std::uint64_t) + stream.map.bytes();
  }
  return bytes;
}

}  // namespace sightline
