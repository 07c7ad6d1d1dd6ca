#include "attention/logits.h"

#include <limits>

namespace sightline {

namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The row's bias by key, and its bits without those that a bias of minus infinity hides.
void gather_bias(const AttentionCall& call, const WorkItem& item, std::int64_t tile, int row,
                 const TileScores& scores) {
  const KeyStream& stream = call.plan->streams[at(item.stream)];
  const kernels::GroupRange& group = scores.groups[row / kernels::kGroupRows];
  const auto& bias = call.extras->bias;
  const std::int64_t* key_rows = stream.key_rows.data() + tile * kTileKeys;
  const std::int64_t first = call.contiguous != nullptr ? call.plan->kv_offsets[at(stream.sequence)] : 0;
  const float* from = bias.data + item.head_of(row) * bias.strides[0] +
                      stream.q_rows[at(item.query_of(row))] * bias.strides[1];
  std::uint64_t* words = scores.words + 2 * static_cast<std::ptrdiff_t>(row);
  for (int key = group.chunk_begin * kernels::kChunkKeys; key < group.chunk_end * kernels::kChunkKeys;
       ++key) {
    const bool seen = (words[key / 64] >> (key % 64) & 1) != 0;
    const float value = seen ? from[(key_rows[key] - first) * bias.strides[2]] : 0.0F;
    scores.bias[key] = value;
    if (value == kMinusInfinity) words[key / 64] &= ~(std::uint64_t{1} << (key % 64));
  }
}

}  // namespace

void modify_logits(const AttentionCall& call, const WorkItem& item, std::int64_t tile,
                   const TileScores& scores) {
  const KeyStream& stream = call.plan->streams[at(item.stream)];
  const ScoreSpec& score = call.spec->score;
  kernels::ModifyArgs args;
  args.scale = static_cast<float>(softmax_scale(score, call.spec->heads));
  args.softcap = static_cast<float>(score.logit_softcap);
  args.has_alibi = !score.alibi_slopes.empty();
  args.k_pos = stream.key_pos.data() + tile * kTileKeys;
  for (int row = 0; row < item.num_rows(); ++row) {
    const kernels::GroupRange& group = scores.groups[row / kernels::kGroupRows];
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(row) * kTileKeys;
    args.scores = scores.scores + first;
    if (scores.cap_slope != nullptr) args.cap_slope = scores.cap_slope + first;
    args.key_begin = group.chunk_begin * kernels::kChunkKeys;
    args.key_end = group.chunk_end * kernels::kChunkKeys;
    if (args.key_begin >= args.key_end) continue;
    if (call.extras->bias.data != nullptr) {
      gather_bias(call, item, tile, row, scores);
      args.bias = scores.bias;
    }
    if (args.has_alibi) args.alibi_slope = static_cast<float>(score.alibi_slopes[at(item.head_of(row))]);
    args.q_pos = static_cast<std::int32_t>(stream.q_coords[at(item.query_of(row))].pos);
    call.table->modify_scores(args);
  }
}

RowDropout::RowDropout(const AttentionCall& call, const WorkItem& item, std::int64_t tile, int row) {
  const DropoutSpec& dropout = call.spec->score.dropout;
  const KeyStream& stream = call.plan->streams[at(item.stream)];
  const TokenCoord& q = stream.q_coords[at(item.query_of(row))];
  rate_ = dropout.rate;
  scale_ = static_cast<float>(1.0 / (1.0 - dropout.rate));
  k_pos_ = stream.key_pos.data() + tile * kTileKeys;
  key_ = {dropout.seed, dropout.layer, item.head_of(row), q.segment, q.pos, 0};
}

}  // namespace sightline
