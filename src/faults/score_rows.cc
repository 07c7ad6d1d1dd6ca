// D. Heads, and E. score and softmax.
#include <cmath>

#include "fault_rows.h"

namespace sightline::faults {
namespace {

using reference::Deviation;

Result<void> heads_tiled(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.heads.num_kv_heads == 1 || spec.heads.group_size() == 1) {
    return not_applicable(fault, fmt::format("{} query heads on {} key heads map alike either way",
                                             spec.heads.num_q_heads, spec.heads.num_kv_heads));
  }
  deviation.head_map = reference::HeadMap::kModulo;
  return {};
}

Result<void> heads_divided(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.heads.num_kv_heads == 1 || spec.heads.group_size() == spec.heads.num_kv_heads) {
    return not_applicable(fault, "the number of key heads is a group's size, or 1");
  }
  deviation.head_map = reference::HeadMap::kDivisor;
  return {};
}

Result<void> needs_heads(const Fault& fault, const AttentionSpec& spec) {
  if (spec.heads.num_q_heads > 1) return {};
  return not_applicable(fault, "one head is laid out alike either way");
}

Result<void> transpose_missing(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_heads(fault, spec));
  deviation.out_layout = reference::OutLayout::kHeadsFirst;
  return {};
}

Result<void> transposed_twice(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_heads(fault, spec));
  deviation.out_layout = reference::OutLayout::kTransposedTwice;
  return {};
}

Result<void> needs_kv_heads(const Fault& fault, const AttentionSpec& spec) {
  if (spec.heads.num_kv_heads > 1) return {};
  return not_applicable(fault, "one key head is laid out alike either way");
}

Result<void> groups_as_blocks(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_kv_heads(fault, spec));
  deviation.fused_layout = reference::FusedLayout::kGroupsAsBlocks;
  return {};
}

Result<void> blocks_as_groups(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_kv_heads(fault, spec));
  deviation.fused_layout = reference::FusedLayout::kBlocksAsGroups;
  return {};
}

Result<void> inputs_heads_first(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.heads.num_q_heads == 1) return not_applicable(fault, "one head lies alike either way");
  deviation.fused_layout = reference::FusedLayout::kHeadsFirst;
  return {};
}

// Scale and frequencies are those of another width. Alone each is a wrong scale or a wrong base: the exponent
// 2i / head_dim in place of 2i / rotary_dim is the base theta^(rotary_dim / head_dim).
Result<void> other_head_dim(const Fault& fault, AttentionSpec& spec) {
  const double head_dim = fault.value("head_dim");
  if (spec.rope.pairing == RopePairing::kNone) return not_applicable(fault, "the layer has no rotation");
  if (spec.score.softmax_scale) return not_applicable(fault, "the scale is stated, not derived from a width");
  if (spec.rope.rotary_dim == 2) return not_applicable(fault, "its only pair turns alike at any width");
  if (head_dim == spec.heads.qk_head_dim) return not_applicable(fault, "this is the layer's head_dim");
  if (head_dim < 2) return not_applicable(fault, "a head has at least two dimensions");
  spec.score.softmax_scale = 1 / std::sqrt(head_dim);
  spec.rope.theta = std::pow(spec.rope.theta, spec.rope.rotary_dim / head_dim);
  return {};
}

Result<void> scale_twice(const Fault&, AttentionSpec& spec) {
  const double scale = softmax_scale(spec.score, spec.heads);
  spec.score.softmax_scale = scale * scale;
  return {};
}

Result<void> scale_factor(const Fault& fault, AttentionSpec& spec) {
  spec.score.softmax_scale = softmax_scale(spec.score, spec.heads) * fault.value("factor");
  return {};
}

Result<void> scale_missing(const Fault&, AttentionSpec& spec) {
  spec.score.softmax_scale = 1.0;
  return {};
}

Result<void> scale_inverted(const Fault&, AttentionSpec& spec) {
  spec.score.softmax_scale = 1 / softmax_scale(spec.score, spec.heads);
  return {};
}

Result<void> scale_on_bias(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.scale_multiplies_bias = true;
  return {};
}

Result<void> needs_softcap(const Fault& fault, const AttentionSpec& spec) {
  if (spec.score.logit_softcap == 0) return not_applicable(fault, "the layer has no softcap");
  return {};
}

Result<void> softcap_missing(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_softcap(fault, spec));
  spec.score.logit_softcap = 0;
  return {};
}

Result<void> softcap_formula(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_softcap(fault, spec));
  deviation.softcap_form = reference::SoftcapForm::kScoreTimesTanh;
  return {};
}

Result<void> softcap_undivided(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_softcap(fault, spec));
  deviation.softcap_form = reference::SoftcapForm::kScoreTimesOwnTanh;
  return {};
}

Result<void> softcap_after_bias(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_softcap(fault, spec));
  deviation.softcap_after_bias = true;
  return {};
}

Result<void> softcap_gradient(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_softcap(fault, spec));
  deviation.omit_softcap_gradient = true;
  return {};
}

Result<void> needs_sink(const Fault& fault, const AttentionSpec& spec) {
  if (spec.score.sink_logits.empty()) return not_applicable(fault, "the layer has no sink");
  return {};
}

Result<void> sink_missing(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_sink(fault, spec));
  spec.score.sink_logits.clear();
  return {};
}

Result<void> sink_twice(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_sink(fault, spec));
  deviation.sink_count = 2;
  return {};
}

Result<void> sink_scaled(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_sink(fault, spec));
  for (double& sink : spec.score.sink_logits) sink *= softmax_scale(spec.score, spec.heads);
  return {};
}

Result<void> sink_gradient(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_sink(fault, spec));
  deviation.omit_sink_gradient = true;
  return {};
}

Result<void> softmax_half(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.softmax_precision = reference::Precision::kBf16;
  return {};
}

Result<void> parts_in_base_2(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.parts_merged_in_base_2 = true;
  return {};
}

Result<void> lse_base_2(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.lse_is_base_2 = true;
  return {};
}

}  // namespace

std::vector<FaultKind> score_rows() {
  constexpr FaultGroup kGroup = FaultGroup::kScore;
  return {
      row("head.gqa_mapping", FaultGroup::kHeads, "query head h reads key head h mod num_kv_heads",
          heads_tiled),
      row("head.gqa_mapping/divisor", FaultGroup::kHeads,
          "query head h reads key head h / num_kv_heads, and the last ones are never read", heads_divided),
      row("head.fused_qkv_layout/groups_as_blocks", FaultGroup::kHeads,
          "fused features stored by key head are split into blocks q, k, v", groups_as_blocks),
      row("head.fused_qkv_layout/blocks_as_groups", FaultGroup::kHeads,
          "fused features stored in blocks q, k, v are split by key head", blocks_as_groups),
      row("head.merge_transpose/missing", FaultGroup::kHeads,
          "outputs [heads, tokens, dim] are read as [tokens, heads, dim]", transpose_missing),
      row("head.merge_transpose/twice", FaultGroup::kHeads,
          "outputs [tokens, heads, dim] are transposed once more", transposed_twice),
      row("head.merge_transpose/inputs", FaultGroup::kHeads,
          "q, k and v [tokens, heads, dim] are read as [heads, tokens, dim]", inputs_heads_first),
      row("head.dim_explicit", FaultGroup::kHeads, "scale and frequencies are those of another head_dim",
          other_head_dim, {{"head_dim", 10, "the width taken", true}}),
      row("score.scale/twice", kGroup, "the softmax scale is applied twice", scale_twice),
      row("score.scale/missing", kGroup, "the softmax scale is not applied", scale_missing),
      row("score.scale/inverted", kGroup, "scores are divided by the softmax scale", scale_inverted),
      row("score.scale/factor", kGroup, "the softmax scale is another number", scale_factor,
          {{"factor", 2, "times the right scale"}}),
      needing(FaultNeed::kBias,
              row("score.scale/on_bias", kGroup, "the softmax scale multiplies the bias too", scale_on_bias)),
      row("score.softcap/missing", kGroup, "scores are not capped", softcap_missing),
      row("score.softcap/formula", kGroup, "x tanh(x / c) in place of c tanh(x / c)", softcap_formula),
      row("score.softcap/undivided", kGroup, "x tanh(x) in place of c tanh(x / c)", softcap_undivided),
      needing(FaultNeed::kBias, row("score.softcap/after_bias", kGroup, "the cap is applied after the bias",
                                    softcap_after_bias)),
      row("score.softcap/gradient", kGroup, "the gradient lacks the slope of the cap", softcap_gradient),
      row("score.sink/missing", kGroup, "the learned sink logit is left out", sink_missing),
      row("score.sink/twice", kGroup, "the learned sink logit is counted twice", sink_twice),
      row("score.sink/scaled", kGroup, "the softmax scale multiplies the learned sink logit", sink_scaled),
      row("score.sink/gradient", kGroup, "the learned sink logit gets no gradient", sink_gradient),
      row("score.softmax_precision", kGroup, "scores, weights and their sum are rounded to bf16",
          softmax_half),
      row("score.lse_base/returned", kGroup, "the log-sum-exp is given to base 2", lse_base_2),
      needing(FaultNeed::kCachedKeys,
              row("score.lse_base/merged", kGroup,
                  "cached and new keys are merged by log-sum-exps to base 2 as if they were natural",
                  parts_in_base_2)),
  };
}

}  // namespace sightline::faults
