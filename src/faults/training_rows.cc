// F. Training objective, and G. gradients.
#include <algorithm>

#include "fault_rows.h"

namespace sightline::faults {
namespace {

using reference::Deviation;

Result<void> label_shift(const Fault& fault, LossSpec& loss) {
  loss.shift = static_cast<int>(fault.value("shift"));
  return validate(loss);
}

Result<void> loss_scope(const Fault&, LossSpec& loss) {
  const bool right_is_out = loss.next_document == NextDocumentScope::kOut;
  loss.next_document = right_is_out ? NextDocumentScope::kIn : NextDocumentScope::kOut;
  return {};
}

Result<void> delta_term(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.omit_row_term = true;
  return {};
}

Result<void> delta_misread(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.heads.num_q_heads == 1) return not_applicable(fault, "one head is laid out alike either way");
  deviation.row_term_misread = true;
  return {};
}

Result<void> needs_groups(const Fault& fault, const AttentionSpec& spec) {
  if (spec.heads.group_size() == 1) return not_applicable(fault, "every query head has its own key head");
  return {};
}

Result<void> last_head_wins(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_groups(fault, spec));
  deviation.gqa_reduction = reference::GqaReduction::kLastHead;
  return {};
}

Result<void> heads_averaged(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_groups(fault, spec));
  deviation.gqa_reduction = reference::GqaReduction::kMean;
  return {};
}

Result<void> first_head_alone(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_groups(fault, spec));
  deviation.gqa_reduction = reference::GqaReduction::kFirstHead;
  return {};
}

Result<void> gradients_tiled(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_groups(fault, spec));
  if (spec.heads.num_kv_heads == 1) return not_applicable(fault, "there is one key head");
  deviation.gqa_reduction = reference::GqaReduction::kTiled;
  return {};
}

// The backward's window holds `keys` more; with 0 it has none.
Result<void> backward_window(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (!uses(spec.mask, MaskOp::kWindow)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no window", to_string(spec.mask)));
  }
  const auto more = static_cast<std::int64_t>(fault.value("window_keys"));
  MaskSpec other = spec.mask;
  for (MaskNode& node : other.nodes) {
    if (node.op != MaskOp::kWindow) continue;
    if (more == 0) {
      node = {MaskOp::kAll, 0};
    } else {
      node.n = std::max<std::int64_t>(1, node.n + more);
    }
  }
  deviation.backward_mask = other;
  return {};
}

Result<void> mask_mismatch(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  MaskSpec wider = spec.mask;
  for (MaskNode& node : wider.nodes) {
    if (node.op == MaskOp::kCausal || node.op == MaskOp::kWindow) node = {MaskOp::kAll, 0};
  }
  if (wider == spec.mask) {
    return not_applicable(fault,
                          fmt::format("the mask '{}' has neither causal nor window", to_string(spec.mask)));
  }
  deviation.backward_mask = wider;
  return {};
}

Result<void> dropout_replay(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.score.dropout.rate == 0) return not_applicable(fault, "the layer has no dropout");
  deviation.backward_dropout_seed_offset = 1;
  return {};
}

Result<void> severed_dq(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.severed_d_q = true;
  return {};
}
Result<void> severed_dk(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.severed_d_k = true;
  return {};
}
Result<void> severed_dv(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.severed_d_v = true;
  return {};
}
Result<void> severed_scores(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.severed_scores = true;
  return {};
}

Result<void> padding_unwritten(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.padding_unwritten = true;
  return {};
}

Result<void> rows_unwritten(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.num_unwritten_rows = static_cast<std::int64_t>(fault.value("unwritten"));
  return {};
}

}  // namespace

std::vector<FaultKind> training_rows() {
  constexpr FaultGroup kObjective = FaultGroup::kObjective;
  constexpr FaultGroup kGradient = FaultGroup::kGradient;
  return {
      row("loss.label_shift", kObjective, "targets are shifted twice (or, with shift 0, not at all)",
          label_shift, {{"shift", 2, "positions between a token and its target", true}}),
      row("loss.scope", kObjective, "the last token of a document predicts the first of the next",
          loss_scope),
      row("grad.delta_term", kGradient, "the backward lacks the row term sum(dO * O)", delta_term),
      row("grad.delta_term/misread", kGradient,
          "the row terms are written [rows, heads] and read as [heads, rows]", delta_misread),
      row("grad.gqa_reduction/last_head", kGradient,
          "the last query head of a group overwrites the others in dK and dV", last_head_wins),
      row("grad.gqa_reduction/mean", kGradient, "dK and dV are the mean over a group instead of the sum",
          heads_averaged),
      row("grad.gqa_reduction/first_head", kGradient,
          "dK and dV are those of the first query head of a group", first_head_alone),
      row("grad.gqa_reduction/tiled", kGradient,
          "query head h adds to dK and dV of key head h mod num_kv_heads", gradients_tiled),
      row("grad.mask_mismatch", kGradient, "the backward knows neither causal nor window", mask_mismatch),
      row("grad.mask_mismatch/window", kGradient, "the backward has another window, or none", backward_window,
          {{"window_keys", 0, "keys added to the window; 0: none", true}}),
      needing(FaultNeed::kPaddingBehind,
              row("grad.unwritten/padding", kGradient,
                  "gradients of padding behind the last token are never written", padding_unwritten)),
      needing(FaultNeed::kNanGradient,
              row("grad.unwritten/nan", kGradient, "the last rows of the gradients are NaN", rows_unwritten,
                  {{"unwritten", 1, "rows at the end", true}})),
      needing(FaultNeed::kZeroGradient,
              row("grad.severed/scores", kGradient, "no gradient passes the softmax: dq and dk are 0",
                  severed_scores)),
      needing(FaultNeed::kZeroGradient, row("grad.severed/dq", kGradient, "dq is 0", severed_dq)),
      needing(FaultNeed::kZeroGradient, row("grad.severed/dk", kGradient, "dk is 0", severed_dk)),
      needing(FaultNeed::kZeroGradient, row("grad.severed/dv", kGradient, "dv is 0", severed_dv)),
      row("grad.dropout_replay", kGradient, "the backward draws another dropout", dropout_replay),
  };
}

}  // namespace sightline::faults
