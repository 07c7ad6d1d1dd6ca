// One work item: rows of one key head against their tiles, split by split. Everything that decides bits is
// here or in kernels: what is added, in which order, and when the maximum moves.
#include <algorithm>
#include <limits>
#include <utility>

#include "attention/call.h"
#include "attention/tile_walk.h"
#include "sightline/base/rng.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int kMaxGroups = kMaxRows / kernels::kGroupRows;

/// The item being run; rows as in WorkItem.
class ItemRun {
 public:
  ItemRun(const ForwardCall& call, const WorkItem& item, ThreadScratch& scratch)
      : call_(call),
        item_(item),
        scratch_(scratch),
        stream_(call.plan->streams[at(item.stream)]),
        num_rows_(item.num_rows()) {
    float* rows = scratch.rows.data();
    rescale_ = rows + kMaxRows;
    split_ = {rows, rows + 4 * kMaxRows, scratch.out.data()};
    total_ = {rows + 2 * kMaxRows, rows + 3 * kMaxRows, scratch.total.data()};
  }

  void run() {
    pack_queries(call_.context->q_rope, scratch_.q.data());
    if (call_.num_first > 0) pack_queries(call_.context->q_first_rope, scratch_.q_first.data());
    TileWalk walk(stream_, item_, scratch_.cursors.data());
    std::int64_t split = -1;
    bool has_total = false;
    start_split();
    while (walk.next()) {
      const std::int64_t tile_split = stream_.tiles[at(walk.tile())] / kSplitTiles;
      if (split >= 0 && tile_split != split) {
        end_split(has_total);
        has_total = true;
        start_split();
      }
      split = tile_split;
      run_tile(walk);
    }
    end_split(has_total);
    if (item_.partial < 0) {
      finish_rows(call_, item_, total_);
    } else {
      store_partial();
    }
  }

 private:
  [[nodiscard]] std::int32_t query_of(int row) const { return item_.q_begin + row / item_.num_heads(); }
  [[nodiscard]] int head_of(int row) const { return item_.head_begin + row % item_.num_heads(); }

  // Rotated queries as the micro-kernel eats them: [group][dim][12].
  void pack_queries(const RopeTable& rope, float* to) {
    const int dims = call_.spec->heads.qk_head_dim;
    float* rows = scratch_.head.data();  // [12][dims], then transposed so that writes are whole lines
    for (int first = 0; first < num_rows_; first += kernels::kGroupRows) {
      for (int r = 0; r < kernels::kGroupRows; ++r) {
        read_query(first + r, rope, rows + static_cast<std::ptrdiff_t>(r) * dims);
      }
      float* group = to + static_cast<std::ptrdiff_t>(first) * dims;
      for (int i = 0; i < dims; ++i) {
        for (int r = 0; r < kernels::kGroupRows; ++r) group[i * kernels::kGroupRows + r] = rows[r * dims + i];
      }
    }
  }

  // One rotated query; rows that do not exist are 0.
  void read_query(int row, const RopeTable& rope, float* to) const {
    const int dims = call_.spec->heads.qk_head_dim;
    if (row >= num_rows_) {
      std::fill_n(to, dims, 0.0F);
      return;
    }
    const std::int64_t q_row = stream_.q_rows[at(query_of(row))];
    const auto& q = call_.q;
    const float* from = q.data + q_row * q.strides[0] + head_of(row) * q.strides[1];
    gather_row(from, q.strides[2], dims, to);
    if (rope.active()) kernels::rotate_head(rope.pairs(), rope.cos(q_row), rope.sin(q_row), to, 1, to, 1);
  }

  void start_split() {
    std::fill_n(split_.max, kMaxRows, kMinusInfinity);
    std::fill_n(scratch_.sums.data(), static_cast<std::ptrdiff_t>(num_rows_) * kernels::kMaxSumLanes, 0.0F);
    std::fill_n(split_.out, static_cast<std::ptrdiff_t>(num_rows_) * call_.padded_v_dim, 0.0F);
  }

  // The first split becomes the total; later ones are merged into it.
  void end_split(bool has_total) {
    for (int row = 0; row < num_rows_; ++row) {
      split_.sum[row] = call_.table->sum_lanes(scratch_.sums.data() +
                                               static_cast<std::ptrdiff_t>(row) * kernels::kMaxSumLanes);
    }
    if (has_total) {
      merge_state(call_, num_rows_, split_, total_);
    } else {
      std::swap(split_, total_);
    }
  }

  void store_partial() const {
    float* base = call_.context->partials.data() +
                  item_.partial * static_cast<std::ptrdiff_t>(kMaxPartialRows) * (call_.padded_v_dim + 2);
    std::copy_n(total_.max, num_rows_, base);
    std::copy_n(total_.sum, num_rows_, base + kMaxPartialRows);
    std::copy_n(total_.out, static_cast<std::ptrdiff_t>(num_rows_) * call_.padded_v_dim,
                base + 2 * kMaxPartialRows);
  }

  void run_tile(TileWalk& walk) {
    const bool has_bias = call_.extras->bias.data != nullptr;
    kernels::GroupRange groups[kMaxGroups];
    if (walk.full() && !has_bias) {
      std::fill_n(groups, kMaxGroups, kernels::GroupRange{0, kernels::kTileChunks, 0, kTileKeys, true});
      scratch_.pairs_computed += static_cast<std::int64_t>(num_rows_) * kTileKeys;
    } else {
      walk.visible(scratch_.query_words.data());
      for (int row = 0; row < num_rows_; ++row) {
        std::copy_n(scratch_.query_words.data() + 2 * (row / item_.num_heads()), 2,
                    scratch_.words.data() + 2 * row);
      }
      scratch_.pairs_computed += trim_groups(num_rows_, scratch_.words.data(), groups);
    }
    const TileOperands operands = tile_operands(call_, stream_, walk.tile(), item_.kv_head, scratch_);
    compute_scores(walk.tile(), operands, groups);
    if (call_.modifies) modify(walk.tile(), groups);
    // A bias of minus infinity makes invisible, so the stretches may shrink.
    if (has_bias) trim_groups(num_rows_, scratch_.words.data(), groups);

    kernels::SoftmaxArgs softmax;
    softmax.scores = scratch_.scores.data();
    softmax.num_rows = num_rows_;
    softmax.is_natural = call_.modifies;
    softmax.scale = call_.scale_log2;
    softmax.groups = groups;
    softmax.words = scratch_.words.data();
    softmax.row_max = split_.max;
    softmax.row_sum = scratch_.sums.data();
    softmax.rescale = rescale_;
    call_.table->softmax_tile(softmax);
    if (call_.spec->score.dropout.rate > 0.0) drop(walk.tile(), groups);
    add_values(operands, groups);
  }

  void compute_scores(std::int32_t tile, const TileOperands& operands, const kernels::GroupRange* groups) {
    kernels::ScoreArgs args;
    args.q = scratch_.q.data();
    args.qk_head_dim = call_.spec->heads.qk_head_dim;
    args.num_rows = num_rows_;
    std::copy_n(operands.keys, kernels::kTileChunks, args.keys);
    args.groups = groups;
    args.scores = scratch_.scores.data();
    call_.table->attention_scores(args);
    if (call_.num_first == 0) return;
    const std::uint64_t* first = stream_.first_keys.data() + 2 * tile;
    if ((first[0] | first[1]) == 0) return;
    args.q = scratch_.q_first.data();
    args.scores = scratch_.scores_first.data();
    call_.table->attention_scores(args);
    for (int row = 0; row < num_rows_; ++row) {
      const kernels::GroupRange& group = groups[row / kernels::kGroupRows];
      for (int key = group.key_begin; key < group.key_end; ++key) {
        if ((first[key / 64] >> (key % 64) & 1) == 0) continue;
        scratch_.scores[at(row * kTileKeys + key)] = scratch_.scores_first[at(row * kTileKeys + key)];
      }
    }
  }

  void modify(std::int32_t tile, const kernels::GroupRange* groups) {
    const ScoreSpec& score = call_.spec->score;
    kernels::ModifyArgs args;
    args.scale = static_cast<float>(softmax_scale(score, call_.spec->heads));
    args.softcap = static_cast<float>(score.logit_softcap);
    args.has_alibi = !score.alibi_slopes.empty();
    args.k_pos = stream_.key_pos.data() + static_cast<std::ptrdiff_t>(tile) * kTileKeys;
    for (int row = 0; row < num_rows_; ++row) {
      const kernels::GroupRange& group = groups[row / kernels::kGroupRows];
      args.scores = scratch_.scores.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      args.key_begin = group.chunk_begin * kernels::kChunkKeys;
      args.key_end = group.chunk_end * kernels::kChunkKeys;
      if (args.key_begin >= args.key_end) continue;
      if (call_.extras->bias.data != nullptr) {
        gather_bias(tile, row, group);
        args.bias = scratch_.bias.data();
      }
      if (args.has_alibi) args.alibi_slope = static_cast<float>(score.alibi_slopes[at(head_of(row))]);
      args.q_pos = static_cast<std::int32_t>(stream_.q_coords[at(query_of(row))].pos);
      call_.table->modify_scores(args);
    }
  }

  // The row's bias by key, and its bits without those that a bias of minus infinity hides.
  void gather_bias(std::int32_t tile, int row, const kernels::GroupRange& group) {
    const auto& bias = call_.extras->bias;
    const std::int64_t* key_rows = stream_.key_rows.data() + static_cast<std::ptrdiff_t>(tile) * kTileKeys;
    const std::int64_t first = call_.contiguous != nullptr ? call_.plan->kv_offsets[at(stream_.sequence)] : 0;
    const float* from =
        bias.data + head_of(row) * bias.strides[0] + stream_.q_rows[at(query_of(row))] * bias.strides[1];
    std::uint64_t* words = scratch_.words.data() + 2 * row;
    for (int key = group.chunk_begin * kernels::kChunkKeys; key < group.chunk_end * kernels::kChunkKeys;
         ++key) {
      const bool seen = (words[key / 64] >> (key % 64) & 1) != 0;
      const float value = seen ? from[(key_rows[key] - first) * bias.strides[2]] : 0.0F;
      scratch_.bias[at(key)] = value;
      if (value == kMinusInfinity) words[key / 64] &= ~(std::uint64_t{1} << (key % 64));
    }
  }

  // Weights as they multiply values; the sums keep the undropped ones.
  void drop(std::int32_t tile, const kernels::GroupRange* groups) {
    const DropoutSpec& dropout = call_.spec->score.dropout;
    const auto kept = static_cast<float>(1.0 / (1.0 - dropout.rate));
    const std::int32_t* k_pos = stream_.key_pos.data() + static_cast<std::ptrdiff_t>(tile) * kTileKeys;
    for (int row = 0; row < num_rows_; ++row) {
      const kernels::GroupRange& group = groups[row / kernels::kGroupRows];
      const TokenCoord& q = stream_.q_coords[at(query_of(row))];
      DropoutKey key{dropout.seed, dropout.layer, head_of(row), q.segment, q.pos, 0};
      float* p = scratch_.scores.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      for (int i = group.key_begin; i < group.key_end; ++i) {
        if (p[i] == 0.0F) continue;
        key.kv_pos = k_pos[i];
        p[i] *= static_cast<double>(uniform_at(key)) >= dropout.rate ? kept : 0.0F;
      }
    }
  }

  void add_values(const TileOperands& operands, const kernels::GroupRange* groups) {
    kernels::ValueArgs args;
    args.p = scratch_.scores.data();
    args.num_rows = num_rows_;
    args.padded_v_dim = call_.padded_v_dim;
    std::copy_n(operands.values, kernels::kTileChunks, args.values);
    args.groups = groups;
    if (operands.values_flagged) {
      const int num_groups = (num_rows_ + kernels::kGroupRows - 1) / kernels::kGroupRows;
      const bool careful = std::any_of(groups, groups + num_groups, [](const kernels::GroupRange& g) {
        return g.chunk_begin < g.chunk_end && !g.all_visible;
      });
      if (careful) {
        ++scratch_.tiles_careful;
        args.words = scratch_.words.data();
      }
    }
    args.rescale = rescale_;
    args.out = split_.out;
    call_.table->attention_values(args);
  }

  const ForwardCall& call_;
  const WorkItem& item_;
  ThreadScratch& scratch_;
  const KeyStream& stream_;
  const int num_rows_;
  float* rescale_ = nullptr;
  RowState split_;
  RowState total_;
};

}  // namespace

void run_item(const ForwardCall& call, const WorkItem& item, ThreadScratch& scratch) {
  ItemRun(call, item, scratch).run();
}

}  // namespace sightline
