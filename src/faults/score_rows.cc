// D. Heads, and E. score and softmax.
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

Result<void> sink_gradient(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_sink(fault, spec));
  deviation.omit_sink_gradient = true;
  return {};
}

Result<void> softmax_half(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.softmax_precision = reference::SoftmaxPrecision::kBf16;
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
      row("score.scale/twice", kGroup, "the softmax scale is applied twice", scale_twice),
      row("score.scale/missing", kGroup, "the softmax scale is not applied", scale_missing),
      row("score.scale/factor", kGroup, "the softmax scale is another number", scale_factor,
          {{"factor", 2, "times the right scale"}}),
      row("score.scale/on_bias", kGroup, "the softmax scale multiplies the bias too", scale_on_bias),
      row("score.softcap/missing", kGroup, "scores are not capped", softcap_missing),
      row("score.softcap/formula", kGroup, "x tanh(x / c) in place of c tanh(x / c)", softcap_formula),
      row("score.softcap/after_bias", kGroup, "the cap is applied after the bias", softcap_after_bias),
      row("score.softcap/gradient", kGroup, "the gradient lacks the slope of the cap", softcap_gradient),
      row("score.sink/missing", kGroup, "the learned sink logit is left out", sink_missing),
      row("score.sink/twice", kGroup, "the learned sink logit is counted twice", sink_twice),
      row("score.sink/gradient", kGroup, "the learned sink logit gets no gradient", sink_gradient),
      row("score.softmax_precision", kGroup, "scores, weights and their sum are rounded to bf16",
          softmax_half),
      row("score.lse_base", kGroup, "the log-sum-exp is given to base 2", lse_base_2),
  };
}

}  // namespace sightline::faults
