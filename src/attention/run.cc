// One work item: rows of one key head against their tiles, split by split. Everything that decides bits is
// here or in kernels: what is added, in which order, and when the maximum moves.
#include <algorithm>
#include <limits>
#include <utility>

#include "attention/call.h"
#include "attention/logits.h"
#include "attention/pack_rows.h"
#include "attention/tile_walk.h"

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
    float* rows = scratch_.head.data();
    pack_rows(*call_.table, stream_, item_, call_.q, &call_.context->q_rope, rows, scratch_.q.data());
    if (call_.num_first > 0) {
      pack_rows(*call_.table, stream_, item_, call_.q, &call_.context->q_first_rope, rows,
                scratch_.q_first.data());
    }
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
      spread_words(item_, scratch_.query_words.data(), scratch_.words.data());
      scratch_.pairs_computed += trim_groups(num_rows_, scratch_.words.data(), groups);
    }
    const TileOperands operands = tile_operands(call_, stream_, walk.tile(), item_.kv_head, scratch_);
    compute_scores(walk.tile(), operands, groups);
    if (call_.modifies) {
      modify_logits(call_, item_, walk.tile(),
                    {scratch_.scores.data(), scratch_.words.data(), scratch_.bias.data(), nullptr, groups});
    }
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

  // Weights as they multiply values; the sums keep the undropped ones.
  void drop(std::int32_t tile, const kernels::GroupRange* groups) {
    for (int row = 0; row < num_rows_; ++row) {
      const kernels::GroupRange& group = groups[row / kernels::kGroupRows];
      RowDropout dropout(call_, item_, tile, row);
      float* p = scratch_.scores.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      for (int i = group.key_begin; i < group.key_end; ++i) {
        if (p[i] != 0.0F) p[i] *= dropout.kept(i);
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
    if (operands.values_flagged && has_unseen_pairs(num_rows_, groups)) {
      ++scratch_.tiles_careful;
      args.words = scratch_.words.data();
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
