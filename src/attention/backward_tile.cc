// One key tile of one key head against every block of rows that sees it. Everything that decides bits of the
// backward is here or in kernels: the five products, their order, and when d_q may be added to.
#include <algorithm>
#include <span>

#include "attention/backward_call.h"
#include "attention/logits.h"
#include "attention/tile_rows.h"
#include "attention/tile_walk.h"

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr int kMaxGroups = kMaxRows / kernels::kGroupRows;

// A row of d_q or d_k, summed before the scale and after the rotation, as the caller has it: `row` is
// overwritten.
void write_gradient(const RopeTable& rope, std::int64_t token, std::span<float> row, float scale, float* to,
                    std::int64_t stride) {
  for (float& x : row) x = x * scale + 0.0F;
  if (rope.active()) {
    kernels::rotate_head_back(rope.pairs(), rope.cos(token), rope.sin(token), row.data(), 1, row.data(), 1);
  }
  for (const float x : row) {
    *to = x;
    to += stride;
  }
}

// Waits till `taken` is `turn`. The tiles before this one were handed out earlier, so they are being run.
void wait_turn(std::atomic<std::int32_t>& taken, std::int32_t turn) {
  constexpr int kSpins = 20000;
  for (int i = 0; i < kSpins; ++i) {
    if (taken.load(std::memory_order_acquire) == turn) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  for (std::int32_t seen = taken.load(std::memory_order_acquire); seen != turn;
       seen = taken.load(std::memory_order_acquire)) {
    taken.wait(seen, std::memory_order_acquire);
  }
}

/// The tile being run.
class KeyTileRun {
 public:
  KeyTileRun(const BackwardCall& call, const KeyTileItem& item, BackwardThread& thread)
      : call_(call),
        thread_(thread),
        wave_(call.scratch->wave),
        unit_(wave_.units[at(item.unit)]),
        stream_(call.plan->streams[at(unit_.stream)]),
        tile_(item.tile),
        dims_(call.spec->heads.qk_head_dim),
        v_dims_(call.spec->heads.v_head_dim) {}

  void run() {
    pack_keys();
    pack_values();
    std::fill_n(thread_.d_keys.data(), static_cast<std::ptrdiff_t>(dims_) * kTileKeys, 0.0F);
    std::fill_n(thread_.d_values.data(), static_cast<std::ptrdiff_t>(v_dims_) * kTileKeys, 0.0F);
    for_blocks([&](const RowBlock& block, const TileRun& run, Turn turn) { run_block(block, run, turn); });
    finish();
  }

  // Sums of e^(logit - lse) of the rows of far blocks.
  void sum() {
    pack_keys();
    for_blocks([&](const RowBlock& block, const TileRun& run, Turn turn) {
      if (block.far) sum_block(block, run, turn);
    });
  }

 private:
  /// When this tile may add to what a block of rows sums over its tiles.
  struct Turn {
    std::atomic<std::int32_t>* taken = nullptr;
    std::int32_t number = 0;
    void wait() const { wait_turn(*taken, number); }
    void pass() const {
      taken->store(number + 1, std::memory_order_release);
      taken->notify_all();
    }
  };

  // f(block, run, turn) for each block that sees the tile.
  template <typename F>
  void for_blocks(F f) {
    for (std::int32_t b = unit_.block_begin; b < unit_.block_end; ++b) {
      const RowBlock& block = wave_.blocks[at(b)];
      std::int32_t number = 0;  // visible tiles of the block before this one
      for (const TileRun& run : stream_.map.runs(block.item.q_begin / stream_.map.tile().q)) {
        if (run.kv_tile_begin > tile_) break;
        if (tile_ < run.kv_tile_end) {
          f(block, run, Turn{&wave_.taken[at(b)], number + tile_ - run.kv_tile_begin});
          break;
        }
        number += run.kv_tile_end - run.kv_tile_begin;
      }
    }
  }

  void pack_keys() {
    const float* rows[kTileKeys];
    gather_tile(call_, stream_, tile_, unit_.kv_head, dims_, read_key, thread_.rows.data(), rows);
    rows_to_keys(*call_.table, rows, dims_, thread_.keys.data());
    rows_to_values(rows, dims_, thread_.key_rows.data());
    keys_flagged_ = !all_finite(thread_.keys.data(), static_cast<std::int64_t>(dims_) * kTileKeys);
  }

  void pack_values() {
    const float* rows[kTileKeys];
    gather_tile(call_, stream_, tile_, unit_.kv_head, v_dims_, read_value, thread_.rows.data(), rows);
    rows_to_keys(*call_.table, rows, v_dims_, thread_.values.data());
  }

  [[nodiscard]] std::int64_t key_row(int key) const {
    return stream_.key_rows[at(static_cast<std::int64_t>(tile_) * kTileKeys + key)];
  }
  [[nodiscard]] bool has_bias() const { return call_.extras->bias.data != nullptr; }

  void sum_block(const RowBlock& block, const TileRun& run, Turn turn) {
    kernels::GroupRange groups[kMaxGroups];
    find_logits(block, run, groups);
    call_.table->softmax_backward(softmax_args(block, groups));
    turn.wait();
    for_visible(block.item, groups, [&](int row, auto for_keys) {
      const float* p = thread_.scores.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      double& sum = wave_.sums[at(block.first_row + row)];
      for_keys([&](int key) { sum += p[key]; });
    });
    turn.pass();
  }

  // Logits of the pairs, and which of them are visible.
  void find_logits(const RowBlock& block, const TileRun& run, kernels::GroupRange* groups) {
    find_groups(block.item, run, groups);
    dot_products(wave_.q.data() + block.first_row * dims_, thread_.keys.data(), dims_, block.item, groups,
                 thread_.scores.data());
    if (call_.modifies) {
      float* slope = call_.spec->score.logit_softcap > 0.0 ? thread_.cap_slope.data() : nullptr;
      modify_logits(call_, block.item, tile_,
                    {thread_.scores.data(), thread_.words.data(), thread_.bias.data(), slope, groups});
      // A bias of minus infinity makes invisible, so the stretches may shrink.
      if (has_bias()) trim_groups(block.item.num_rows(), thread_.words.data(), groups);
    }
  }

  void run_block(const RowBlock& block, const TileRun& run, Turn turn) {
    kernels::GroupRange groups[kMaxGroups];
    find_logits(block, run, groups);
    dot_products(wave_.d_out.data() + block.first_row * v_dims_, thread_.values.data(), v_dims_, block.item,
                 groups, thread_.d_weights.data());
    weights_and_slopes(block, groups);
    add_outer(block, groups, wave_.d_out.data() + block.first_row * v_dims_, v_dims_, thread_.scores.data(),
              thread_.d_values.data());
    if (!call_.gradients->d_alibi_slopes.empty()) add_alibi(block.item, groups);
    turn.wait();
    if (call_.gradients->d_bias.data != nullptr) add_bias(block.item, groups);
    if (call_.spec->score.logit_softcap > 0.0) through_softcap(block.item, groups);
    add_queries(block, groups);
    turn.pass();
    add_outer(block, groups, wave_.q.data() + block.first_row * dims_, dims_, thread_.d_weights.data(),
              thread_.d_keys.data());
  }

  void find_groups(const WorkItem& item, const TileRun& run, kernels::GroupRange* groups) {
    if (is_whole(stream_.map, run, tile_) && !has_bias()) {
      std::fill_n(groups, kMaxGroups, kernels::GroupRange{0, kernels::kTileChunks, 0, kTileKeys, true});
      thread_.pairs_computed += static_cast<std::int64_t>(item.num_rows()) * kTileKeys;
      return;
    }
    for (std::int32_t q = item.q_begin; q < item.q_end; ++q) {
      std::int32_t cursor = 0;
      visible_keys(stream_.map, run, tile_, q, cursor, thread_.query_words.data() + 2 * (q - item.q_begin));
    }
    spread_words(item, thread_.query_words.data(), thread_.words.data());
    thread_.pairs_computed += trim_groups(item.num_rows(), thread_.words.data(), groups);
  }

  // q k^T and dO v^T: one kernel, two pairs of operands.
  void dot_products(const float* rows, const float* keys, int dims, const WorkItem& item,
                    const kernels::GroupRange* groups, float* to) {
    kernels::ScoreArgs args;
    args.q = rows;
    args.qk_head_dim = dims;
    args.num_rows = item.num_rows();
    for (int c = 0; c < kernels::kTileChunks; ++c) {
      args.keys[c] = keys + static_cast<std::ptrdiff_t>(c) * kernels::kChunkKeys * dims;
    }
    args.groups = groups;
    args.scores = to;
    call_.table->attention_scores(args);
  }

  [[nodiscard]] kernels::SoftmaxBackwardArgs softmax_args(const RowBlock& block,
                                                          const kernels::GroupRange* groups) {
    kernels::SoftmaxBackwardArgs args;
    args.scores = thread_.scores.data();
    args.d_weights = thread_.d_weights.data();
    args.num_rows = block.item.num_rows();
    args.is_natural = call_.modifies;
    args.scale = call_.scale_log2;
    args.groups = groups;
    args.words = thread_.words.data();
    args.lse = wave_.lse.data() + block.first_row;
    args.share = wave_.share.data() + block.first_row;
    args.delta = wave_.delta.data() + block.first_row;
    return args;
  }

  void weights_and_slopes(const RowBlock& block, const kernels::GroupRange* groups) {
    kernels::SoftmaxBackwardArgs args = softmax_args(block, groups);
    if (call_.spec->score.dropout.rate > 0.0) {
      for_visible(block.item, groups, [&](int row, auto for_keys) {
        RowDropout dropout(call_, block.item, tile_, row);
        float* kept = thread_.kept.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
        for_keys([&](int key) { kept[key] = dropout.kept(key); });
      });
      args.kept = thread_.kept.data();
    }
    call_.table->softmax_backward(args);
  }

  // f(row, for_keys) for each row whose group has a chunk; for_keys(g) calls g for each key of those chunks.
  template <typename F>
  void for_visible(const WorkItem& item, const kernels::GroupRange* groups, F f) {
    for (int row = 0; row < item.num_rows(); ++row) {
      const kernels::GroupRange& group = groups[row / kernels::kGroupRows];
      if (group.chunk_begin >= group.chunk_end) continue;
      f(row, [&](auto g) {
        for (int key = group.chunk_begin * kernels::kChunkKeys; key < group.chunk_end * kernels::kChunkKeys;
             ++key) {
          g(key);
        }
      });
    }
  }

  void add_outer(const RowBlock& block, const kernels::GroupRange* groups, const float* x, int dims,
                 const float* w, float* out) {
    kernels::OuterArgs args;
    args.x = x;
    args.dims = dims;
    args.num_rows = block.item.num_rows();
    args.w = w;
    args.groups = groups;
    if (block.flagged) args.words = thread_.words.data();
    args.out = out;
    call_.table->attention_outer(args);
  }

  void add_queries(const RowBlock& block, const kernels::GroupRange* groups) {
    kernels::ValueArgs args;
    args.p = thread_.d_weights.data();
    args.num_rows = block.item.num_rows();
    args.padded_v_dim = call_.padded_qk_dim;
    for (int c = 0; c < kernels::kTileChunks; ++c) {
      args.values[c] = thread_.key_rows.data() +
                       static_cast<std::ptrdiff_t>(c) * kernels::kChunkKeys * call_.padded_qk_dim;
    }
    args.groups = groups;
    if (keys_flagged_ && has_unseen_pairs(block.item.num_rows(), groups)) {
      ++thread_.tiles_careful;
      args.words = thread_.words.data();
    }
    args.rescale = thread_.ones.data();
    args.out = wave_.d_q.data() + block.first_row * call_.padded_qk_dim;
    call_.table->attention_values(args);
  }

  // dS with respect to the dot products, from that with respect to the capped logits.
  void through_softcap(const WorkItem& item, const kernels::GroupRange* groups) {
    for_visible(item, groups, [&](int row, auto for_keys) {
      float* d_scores = thread_.d_weights.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      const float* slope = thread_.cap_slope.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      for_keys([&](int key) { d_scores[key] = d_scores[key] == 0.0F ? 0.0F : d_scores[key] * slope[key]; });
    });
  }

  void add_bias(const WorkItem& item, const kernels::GroupRange* groups) {
    const auto& d_bias = call_.gradients->d_bias;
    const std::int64_t first = call_.plan->kv_offsets[at(stream_.sequence)];
    for_visible(item, groups, [&](int row, auto for_keys) {
      const float* d_scores = thread_.d_weights.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      float* to = d_bias.data + item.head_of(row) * d_bias.strides[0] +
                  stream_.q_rows[at(item.query_of(row))] * d_bias.strides[1];
      for_keys([&](int key) {
        if (d_scores[key] != 0.0F) to[(key_row(key) - first) * d_bias.strides[2]] += d_scores[key];
      });
    });
  }

  void add_alibi(const WorkItem& item, const kernels::GroupRange* groups) {
    const int group = call_.spec->heads.group_size();
    double* to =
        call_.scratch->d_slopes.data() + unit_.first_slope + static_cast<std::int64_t>(tile_) * group;
    const std::int32_t* k_pos = stream_.key_pos.data() + static_cast<std::ptrdiff_t>(tile_) * kTileKeys;
    for_visible(item, groups, [&](int row, auto for_keys) {
      const float* d_scores = thread_.d_weights.data() + static_cast<std::ptrdiff_t>(row) * kTileKeys;
      const auto q_pos = static_cast<double>(stream_.q_coords[at(item.query_of(row))].pos);
      double sum = 0.0;
      for_keys([&](int key) {
        if (d_scores[key] != 0.0F) sum += d_scores[key] * (k_pos[key] - q_pos);
      });
      to[item.head_of(row) % group] += sum;
    });
  }

  // d_k and d_v of the tile's keys to the caller's arrays.
  void finish() {
    const auto& d_k = call_.gradients->d_k;
    const auto& d_v = call_.gradients->d_v;
    const std::span<float> row(thread_.rows.data(), at(dims_));
    for (int t = 0; t < kTileKeys; ++t) {
      const std::int64_t kv_row = key_row(t);
      if (kv_row < 0) continue;
      for (int i = 0; i < dims_; ++i) row[at(i)] = thread_.d_keys[at(i * kTileKeys + t)];
      write_gradient(call_.context->kv_rope, kv_row, row, call_.scale, &d_k(kv_row, unit_.kv_head, 0),
                     d_k.strides[2]);
      float* to = &d_v(kv_row, unit_.kv_head, 0);
      for (int i = 0; i < v_dims_; ++i)
        to[i * d_v.strides[2]] = thread_.d_values[at(i * kTileKeys + t)] + 0.0F;
    }
  }

  const BackwardCall& call_;
  BackwardThread& thread_;
  BackwardWave& wave_;
  const BackwardUnit& unit_;
  const KeyStream& stream_;
  const std::int32_t tile_;
  const int dims_;
  const int v_dims_;
  bool keys_flagged_ = false;
};

}  // namespace

void run_key_tile(const BackwardCall& call, const KeyTileItem& item, BackwardThread& thread) {
  KeyTileRun(call, item, thread).run();
}

void sum_key_tile(const BackwardCall& call, const KeyTileItem& item, BackwardThread& thread) {
  KeyTileRun(call, item, thread).sum();
}

void finish_block(const BackwardCall& call, const RowBlock& block) {
  const KeyStream& stream = call.plan->streams[at(block.item.stream)];
  const auto& d_q = call.gradients->d_q;
  for (int r = 0; r < block.item.num_rows(); ++r) {
    const std::int64_t q_row = stream.q_rows[at(block.item.query_of(r))];
    float* row = call.scratch->wave.d_q.data() + (block.first_row + r) * call.padded_qk_dim;
    write_gradient(call.context->q_rope, q_row, {row, at(call.spec->heads.qk_head_dim)}, call.scale,
                   &d_q(q_row, block.item.head_of(r), 0), d_q.strides[2]);
  }
}

}  // namespace sightline
