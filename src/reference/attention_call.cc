#include "attention_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sightline/base/rng.h"
#include "sightline/reference/rotate.h"

namespace sightline::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

}  // namespace

AttentionCall::AttentionCall(const AttentionSpec& spec, const AttentionInputs& inputs,
                             const Deviation& deviation)
    : spec_(spec), in_(inputs), deviation_(deviation) {}

Result<AttentionCall> AttentionCall::make(const AttentionSpec& spec, const AttentionInputs& inputs,
                                          const Deviation& deviation, const char* function) {
  AttentionCall call(spec, inputs, deviation);
  SIGHTLINE_CHECK(call.check(function));
  call.rotate_all();
  return call;
}

int AttentionCall::kv_head(int q_head) const {
  if (deviation_.head_map == HeadMap::kModulo) return q_head % num_kv_heads();
  if (deviation_.head_map == HeadMap::kDivisor) return std::min(q_head / num_kv_heads(), num_kv_heads() - 1);
  return kv_head_for(spec_.heads, q_head);
}

int AttentionCall::gradient_kv_head(int q_head) const {
  return deviation_.gqa_reduction == GqaReduction::kTiled ? q_head % num_kv_heads() : kv_head(q_head);
}

int AttentionCall::bias_head(int q_head) const {
  if (!deviation_.bias_heads_transposed) return q_head;
  const int group_size = spec_.heads.group_size();
  return q_head % group_size * num_kv_heads() + q_head / group_size;
}

namespace {

MaskSpec with_wider_windows(MaskSpec mask, std::int64_t extra) {
  for (MaskNode& node : mask.nodes) {
    if (node.op == MaskOp::kWindow) node.n += extra;
  }
  return mask;
}

MaskSpec without_causal(MaskSpec mask) {
  for (MaskNode& node : mask.nodes) {
    if (node.op == MaskOp::kCausal) node.op = MaskOp::kAll;
  }
  return mask;
}

/// The tree in which each node has the one before it as its parent.
std::vector<std::int32_t> chain_of(std::size_t num_nodes) {
  std::vector<std::int32_t> parents(num_nodes);
  std::iota(parents.begin(), parents.end(), -1);
  return parents;
}

std::int64_t block_of(std::int64_t position, std::int64_t size) {
  return (position >= 0 ? position : position - size + 1) / size;
}

bool is_in_seen_block(const Deviation& deviation, const TokenCoord& query, const TokenCoord& key) {
  const std::int64_t size = deviation.block_size;
  if (size <= 0) return true;
  const std::int64_t back = block_of(query.pos, size) - block_of(key.pos, size);
  return back >= 0 && back <= deviation.num_blocks_back;
}

}  // namespace

std::vector<bool> AttentionCall::visible_keys(const MaskSpec& declared, std::int64_t i) const {
  const bool is_wider = deviation_.window_extra_in_prompts != 0 && kv_len() - in_.num_cached > 1;
  const MaskSpec mask =
      is_wider ? with_wider_windows(declared, deviation_.window_extra_in_prompts) : declared;
  const TokenRef query{seen_.q.empty() ? in_.q_coords[at(i)] : seen_.q[at(i)], i};
  const std::span<const TokenCoord> kv_coords = seen_.kv.empty() ? in_.kv_coords : seen_.kv;
  // What a draft sees of drafts and of what is committed, where that is wrong.
  MaskTables tables = in_.tables;
  const bool is_draft = !tables.q_node.empty() && tables.q_node[at(i)] >= 0;
  const bool takes_rows = is_draft && deviation_.draft_tree == DraftTree::kRows;
  const bool hides_committed = is_draft && deviation_.draft_tree == DraftTree::kAncestorsAlone;
  std::vector<std::int32_t> chain;
  MaskSpec among_drafts;  // in a row they are causal by their rows, whatever their depths
  if (takes_rows) {
    chain = chain_of(tables.parent.size());
    tables.parent = chain;
    among_drafts = without_causal(mask);
  }
  std::vector<bool> visible(at(kv_len()));
  for (std::int64_t j = 0; j < kv_len(); ++j) {
    const TokenRef key{kv_coords[at(j)], j};
    const bool is_key_draft = (takes_rows || hides_committed) && tables.kv_node[at(j)] >= 0;
    if (hides_committed && !is_key_draft) continue;
    visible[at(j)] = is_visible(takes_rows && is_key_draft ? among_drafts : mask, tables, query, key) &&
                     is_in_seen_block(deviation_, query.coord, key.coord);
  }
  return visible;
}

std::int64_t AttentionCall::num_zero_keys(std::int64_t i) const {
  if (!in_.q_coords[at(i)].valid) return 0;
  return deviation_.num_zero_keys + seen_.num_zero_keys;
}

PairScore AttentionCall::pair_score(int h, std::int64_t i, std::int64_t j, bool visible) const {
  double bias = has_bias() ? in_.bias(bias_head(h), i, j) : 0.0;
  if (bias == -kInfinity || (deviation_.bias_hides && bias != 0)) {
    visible = false;
    bias = 0;
  }
  PairScore pair;
  if (!visible && deviation_.fill_value && !deviation_.fill_is_added) {
    pair.counts = true;
    pair.logit = *deviation_.fill_value;
    return pair;
  }
  const bool counts_hidden = deviation_.mask_is_added || (deviation_.fill_value && deviation_.fill_is_added);
  if (!visible && !counts_hidden) return pair;
  pair.counts = true;
  pair.from_dot = true;

  const double* q = rotated_q(i, h, j);
  const double* k = rotated_k(j, kv_head(h));
  double dot = 0;
  for (int c = 0; c < qk_dim(); ++c) dot += q[c] * k[c];

  const double scale = softmax_scale(spec_.score, spec_.heads);
  const double cap = spec_.score.logit_softcap;
  const double added_bias = deviation_.scale_multiplies_bias ? scale * bias : bias;
  double x = dot * scale;
  if (deviation_.softcap_after_bias) x += added_bias;
  pair.d_logit_d_dot = scale;
  if (cap > 0) {
    const double t = std::tanh(x / cap);
    if (deviation_.softcap_form == SoftcapForm::kScoreTimesOwnTanh) {
      const double own = std::tanh(x);
      pair.d_logit_d_dot *= own + x * (1 - own * own);
      x = x * own;
    } else if (deviation_.softcap_form == SoftcapForm::kScoreTimesTanh) {
      pair.d_logit_d_dot *= t + x / cap * (1 - t * t);
      x = x * t;
    } else {
      pair.d_logit_d_dot *= 1 - t * t;
      x = cap * t;
    }
  }
  if (!deviation_.softcap_after_bias) x += added_bias;
  const bool lacks_alibi = deviation_.alibi_lost_in_decode && kv_len() - in_.num_cached == 1;
  if (!spec_.score.alibi_slopes.empty() && !lacks_alibi) {
    x += spec_.score.alibi_slopes[at(h)] *
         static_cast<double>(in_.kv_coords[at(j)].pos - in_.q_coords[at(i)].pos);
  }
  if (deviation_.mask_is_added) x += visible ? 1 : 0;
  if (!visible && deviation_.fill_value && deviation_.fill_is_added) x += *deviation_.fill_value;
  pair.logit = round_to(deviation_.softmax_precision, x);
  return pair;
}

double AttentionCall::keep_factor(int h, std::int64_t i, std::int64_t j, std::uint64_t seed_offset) const {
  const DropoutSpec& dropout = spec_.score.dropout;
  if (dropout.rate == 0) return 1;
  const TokenCoord& q = in_.q_coords[at(i)];
  const DropoutKey key{.seed = dropout.seed + seed_offset,
                       .layer = dropout.layer,
                       .q_head = h,
                       .segment = q.segment,
                       .q_pos = q.pos,
                       .kv_pos = in_.kv_coords[at(j)].pos};
  return uniform_at(key) >= dropout.rate ? 1 / (1 - dropout.rate) : 0;
}

double AttentionCall::sink_logit(int h) const {
  return has_sink() ? spec_.score.sink_logits[at(h)] : -kInfinity;
}

bool AttentionCall::meets_as_first(std::int64_t j) const {
  const TokenCoord& k = in_.kv_coords[at(j)];
  return in_cache_ && k.pos - k.segment_start < reach_.num_first;
}

const double* AttentionCall::rotated_q(std::int64_t i, int h, std::int64_t j) const {
  const auto& rotated = meets_as_first(j) ? rotated_q_as_first_ : rotated_q_;
  return rotated.data() + (i * num_q_heads() + h) * qk_dim();
}

const double* AttentionCall::rotated_k(std::int64_t j, int g) const {
  return rotated_k_.data() + (j * num_kv_heads() + g) * qk_dim();
}

}  // namespace sightline::reference
