// C. At which position.
#include <algorithm>
#include <cmath>

#include "fault_rows.h"

namespace sightline::faults {
namespace {

Result<void> needs_rotation(const Fault& fault, const AttentionSpec& spec) {
  if (spec.rope.pairing == RopePairing::kNone) return not_applicable(fault, "the layer has no rotation");
  return {};
}

Result<void> pairing_mixed(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  const bool neighbours = spec.rope.pairing == RopePairing::kInterleaved;
  spec.rope.pairing = neighbours ? RopePairing::kHalfSplit : RopePairing::kInterleaved;
  return {};
}

// Rows of the projections of q, of k or of both, in an order made for heads of another width.
Result<void> rows_misplaced(const Fault& fault, const AttentionSpec& spec, RowMistake mistake, bool of_q,
                            bool of_k, reference::Deviation& deviation) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  const HeadSpec& heads = spec.heads;
  const int width = static_cast<int>(fault.value("width"));
  if (spec.rope.rotary_dim != heads.qk_head_dim) {
    return not_applicable(fault, "rows of a head of which a part rotates have no order of their own");
  }
  const auto fits = [&](int num_heads) {
    return width >= 2 && width % 2 == 0 && num_heads * heads.qk_head_dim % width == 0;
  };
  if (width == heads.qk_head_dim || (of_q && !fits(heads.num_q_heads)) ||
      (of_k && !fits(heads.num_kv_heads))) {
    return not_applicable(fault, "it is the right width, or no even divisor of the number of rows");
  }
  if (mistake == RowMistake::kWritten && of_q && of_k && width == 2) {
    return not_applicable(fault, "rows that are never ordered are the other pairing");
  }
  deviation.row_mistake = mistake;
  if (of_q) deviation.q_row_width = width;
  if (of_k) deviation.k_row_width = width;
  return {};
}

Result<void> rows_read(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return rows_misplaced(fault, spec, RowMistake::kRead, true, true, to);
}
Result<void> query_rows_read(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return rows_misplaced(fault, spec, RowMistake::kRead, true, false, to);
}
Result<void> key_rows_read(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return rows_misplaced(fault, spec, RowMistake::kRead, false, true, to);
}
Result<void> rows_written(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return rows_misplaced(fault, spec, RowMistake::kWritten, true, true, to);
}
Result<void> query_rows_written(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return rows_misplaced(fault, spec, RowMistake::kWritten, true, false, to);
}
Result<void> key_rows_written(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return rows_misplaced(fault, spec, RowMistake::kWritten, false, true, to);
}

Result<void> wrong_base(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.theta = fault.value("theta");
  return {};
}

// Position 0 turns nothing.
Result<void> keys_unrotated(const Fault&, CallCoords& call) {
  std::ranges::fill(call.kv_rope_pos, 0);
  return {};
}

Result<void> queries_unrotated(const Fault&, CallCoords& call) {
  std::ranges::fill(call.q_rope_pos, 0);
  return {};
}

Result<void> none_rotated(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.pairing = RopePairing::kNone;
  return {};
}

// Declared without a rotation, and rotated over the whole head.
Result<void> rotated_as(RopePairing pairing, const Fault& fault, AttentionSpec& spec) {
  if (spec.rope.pairing != RopePairing::kNone) return not_applicable(fault, "the layer has a rotation");
  if (spec.heads.qk_head_dim % 2 != 0) return not_applicable(fault, "the head has an odd width");
  spec.rope.pairing = pairing;
  spec.rope.rotary_dim = spec.heads.qk_head_dim;
  spec.rope.theta = fault.value("theta");
  return {};
}

Result<void> rotated_halves(const Fault& fault, AttentionSpec& spec) {
  return rotated_as(RopePairing::kHalfSplit, fault, spec);
}

Result<void> rotated_neighbours(const Fault& fault, AttentionSpec& spec) {
  return rotated_as(RopePairing::kInterleaved, fault, spec);
}

Result<void> all_turned_back(const Fault&, CallCoords& call) {
  for (std::int64_t& p : call.q_rope_pos) p = -p;
  for (std::int64_t& p : call.kv_rope_pos) p = -p;
  return {};
}

Result<void> keys_turned_back(const Fault&, CallCoords& call) {
  for (std::int64_t& p : call.kv_rope_pos) p = -p;
  return {};
}

Result<void> all_dims(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.rotary_dim = spec.heads.qk_head_dim;
  return {};
}

// The exponent 2i / qk_head_dim in place of 2i / rotary_dim is another base.
Result<void> exponent_of_all_dims(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.theta = std::pow(spec.rope.theta, spec.rope.rotary_dim / double(spec.heads.qk_head_dim));
  return {};
}

Result<void> other_partner(const Fault& fault, const AttentionSpec& spec, reference::Deviation& deviation) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  if (spec.rope.pairing != RopePairing::kHalfSplit || spec.rope.rotary_dim == spec.heads.qk_head_dim) {
    return not_applicable(fault, "the rotation is over the whole head, or of neighbours");
  }
  deviation.rope_partner_of_head = true;
  return {};
}

Result<void> other_factor(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  const RopeScalingKind kind = spec.rope.scaling.kind;
  if (kind == RopeScalingKind::kNone || kind == RopeScalingKind::kDivisors || !(fault.value("taken") > 0)) {
    return not_applicable(fault, "the frequencies are not scaled by a factor");
  }
  spec.rope.scaling.factor = fault.value("taken");
  return {};
}

Result<void> scaling_missing(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.scaling = {};
  return {};
}

Result<void> magnitude_ignored(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.cos_sin_magnitude = 1;
  return {};
}

Result<void> magnitude_squared(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  spec.rope.cos_sin_magnitude *= spec.rope.cos_sin_magnitude;
  return {};
}

Result<void> magnitude_of_formula(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  if (spec.rope.scaling.kind != RopeScalingKind::kYarn) return not_applicable(fault, "the layer has no yarn");
  spec.rope.cos_sin_magnitude = yarn_magnitude(spec.rope.scaling.factor);
  return {};
}

// What should multiply cos and sin multiplies every logit.
Result<void> magnitude_on_logits(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  const double magnitude = spec.rope.cos_sin_magnitude;
  spec.score.softmax_scale = softmax_scale(spec.score, spec.heads) * magnitude * magnitude;
  spec.rope.cos_sin_magnitude = 1;
  return {};
}

Result<void> keys_go_stale(const Fault& fault, AttentionSpec& spec) {
  const RopeScalingKind kind = spec.rope.scaling.kind;
  if (kind != RopeScalingKind::kDynamicNtk && kind != RopeScalingKind::kLongRope) {
    return not_applicable(fault, "the layer's frequencies do not depend on length");
  }
  spec.rope.length_policy = RopeLengthPolicy::kCurrentLength;
  return {};
}

Result<void> table_clamped(const Fault& fault, CallCoords& call) {
  const auto last = static_cast<std::int64_t>(fault.value("rows")) - 1;
  for (std::int64_t& p : call.q_rope_pos) p = std::min(p, last);
  for (std::int64_t& p : call.kv_rope_pos) p = std::min(p, last);
  return {};
}

Result<void> table_wrapped(const Fault& fault, CallCoords& call) {
  const auto rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(fault.value("rows")));
  for (std::int64_t& p : call.q_rope_pos) p = (p % rows + rows) % rows;
  for (std::int64_t& p : call.kv_rope_pos) p = (p % rows + rows) % rows;
  return {};
}

Result<void> round_rotation(const Fault& fault, const AttentionSpec& spec, reference::RopeStage stage,
                            reference::Deviation& deviation) {
  SIGHTLINE_CHECK(needs_rotation(fault, spec));
  deviation.rope_rounded = stage;
  deviation.rope_precision =
      fault.value("bits") <= 8 ? reference::Precision::kBf16 : reference::Precision::kF16;
  return {};
}

Result<void> positions_rounded(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return round_rotation(fault, spec, reference::RopeStage::kPosition, to);
}
Result<void> frequencies_rounded(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return round_rotation(fault, spec, reference::RopeStage::kFrequency, to);
}
Result<void> angles_rounded(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return round_rotation(fault, spec, reference::RopeStage::kAngle, to);
}
Result<void> tables_rounded(const Fault& fault, const AttentionSpec& spec, reference::Deviation& to) {
  return round_rotation(fault, spec, reference::RopeStage::kTable, to);
}

Result<void> position_not_reset(const Fault&, CallCoords& call) {
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    call.q_rope_pos[i] = call.q_coords[i].pos;
    call.kv_rope_pos[i] = call.kv_coords[i].pos;
  }
  return {};
}

// The first call takes rows for positions, padding included; later calls count tokens.
Result<void> pads_counted(const Fault&, CallCoords& call) {
  if (call.num_cached > 0) return {};
  std::int64_t num_pads = 0;
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    if (!call.q_coords[i].valid) ++num_pads;
    call.q_rope_pos[i] += num_pads;
    call.kv_rope_pos[i] += num_pads;
  }
  return {};
}

Result<void> slopes_off(const Fault& fault, AttentionSpec& spec) {
  if (spec.score.alibi_slopes.empty()) return not_applicable(fault, "the layer has no ALiBi slopes");
  // 2^(-8h/H) in place of 2^(-8(h+1)/H).
  for (double& slope : spec.score.alibi_slopes) slope *= std::exp2(8.0 / spec.heads.num_q_heads);
  return {};
}

// One geometric row for any number of heads, where the paper interleaves two.
Result<void> plain_slopes(const Fault& fault, AttentionSpec& spec) {
  if (spec.score.alibi_slopes.empty()) return not_applicable(fault, "the layer has no ALiBi slopes");
  for (int h = 0; h < spec.heads.num_q_heads; ++h) {
    spec.score.alibi_slopes[static_cast<std::size_t>(h)] = std::exp2(-8.0 * (h + 1) / spec.heads.num_q_heads);
  }
  return {};
}

Result<void> lost_in_decode(const Fault& fault, const AttentionSpec& spec, reference::Deviation& deviation) {
  if (spec.score.alibi_slopes.empty()) return not_applicable(fault, "the layer has no ALiBi slopes");
  deviation.alibi_lost_in_decode = true;
  return {};
}

}  // namespace

std::vector<FaultKind> position_rows() {
  constexpr FaultGroup kPosition = FaultGroup::kPosition;
  const FaultParameter kWidth{"width", 4, "rows taken for one head; 2: each pair for itself, so not moved",
                              true};
  const FaultParameter kBits{"bits", 8, "bits of the significand: 8 for bf16, 11 for f16", true};
  std::vector<FaultKind> rows = {
      row("rope.pairing", kPosition, "neighbours and halves are mixed up", pairing_mixed),
      row("rope.pairing/all_turned_back", kPosition,
          "queries and keys are turned the other way: the sign of the sine is wrong", all_turned_back),
      row("rope.pairing/keys_turned_back", kPosition,
          "keys are turned the other way, queries are not: the sign of their sine is wrong",
          keys_turned_back),
      row("rope.pairing/rows_read", kPosition,
          "rows of q and k, neighbours in the file, are put back into halves for heads of another width",
          rows_read, {kWidth}),
      row("rope.pairing/query_rows_read", kPosition,
          "rows of q, neighbours in the file, are put back into halves for heads of another width",
          query_rows_read, {kWidth}),
      row("rope.pairing/key_rows_read", kPosition,
          "rows of k, neighbours in the file, are put back into halves for heads of another width",
          key_rows_read, {kWidth}),
      row("rope.pairing/rows_written", kPosition,
          "rows of q and k were written as neighbours for heads of another width", rows_written, {kWidth}),
      row("rope.pairing/query_rows_written", kPosition,
          "rows of q were written as neighbours for heads of another width", query_rows_written, {kWidth}),
      row("rope.pairing/key_rows_written", kPosition,
          "rows of k were written as neighbours for heads of another width", key_rows_written, {kWidth}),
      row("rope.base", kPosition, "the rotary base is a default, not the model's", wrong_base,
          {{"theta", 10000, "the base taken"}}),
      row("rope.partial_dim/all", kPosition, "all dimensions rotate where a part should", all_dims),
      // In calls of one token positions that restart turn nothing, and are likelier.
      unlikely(row(
          "rope.partial_dim/none", kPosition,
          "nothing is rotated: the rotation is left out, or q and k were rotated before they were written "
          "down",
          none_rotated)),
      row("rope.partial_dim/rotated_halves", kPosition,
          "q and k are rotated by halves, and no rotation is declared", rotated_halves,
          {{"theta", 10000, "the base of that rotation"}}),
      row("rope.partial_dim/rotated_neighbours", kPosition,
          "q and k are rotated by neighbours, and no rotation is declared", rotated_neighbours,
          {{"theta", 10000, "the base of that rotation"}}),
      unlikely(row("rope.partial_dim/keys_unrotated", kPosition, "queries are rotated and keys are not",
                   keys_unrotated)),
      unlikely(row("rope.partial_dim/queries_unrotated", kPosition, "keys are rotated and queries are not",
                   queries_unrotated)),
      row("rope.partial_dim/exponent", kPosition,
          "a part rotates at frequencies whose exponent counts all dimensions", exponent_of_all_dims),
      row("rope.partial_dim/partner", kPosition,
          "half of the head, not of its rotary part, lies between partners", other_partner),
      row("rope.scaling_missing", kPosition, "the frequencies are not scaled", scaling_missing),
      row("rope.scaling_missing/factor", kPosition, "the frequencies are scaled by another factor",
          other_factor, {{"taken", 8, "the factor taken"}}),
      row("rope.yarn_magnitude/ignored", kPosition, "the magnitude of cos and sin is left at 1",
          magnitude_ignored),
      row("rope.yarn_magnitude/squared", kPosition, "the magnitude of cos and sin is applied twice",
          magnitude_squared),
      row("rope.yarn_magnitude/formula", kPosition,
          "the magnitude of cos and sin is 0.1 ln(factor) + 1, whatever was given", magnitude_of_formula),
      row("rope.yarn_magnitude/on_logits", kPosition,
          "the magnitude of cos and sin multiplies every logit instead", magnitude_on_logits),
      row("rope.low_precision/frequencies", kPosition, "frequencies are held in a half type",
          frequencies_rounded, {kBits}),
      row("rope.low_precision/angles", kPosition, "angles are held in a half type", angles_rounded, {kBits}),
      row("rope.low_precision/tables", kPosition, "cos and sin are held in a half type", tables_rounded,
          {kBits}),
      row("rope.low_precision/positions", kPosition, "positions are held in a half type", positions_rounded,
          {kBits}),
      row("rope.table_bounds", kPosition, "positions beyond the table are clamped to its last row",
          table_clamped, {{"rows", 64, "rows of the table", true}}),
      row("rope.table_bounds/wrapped", kPosition, "positions beyond the table begin at its first row again",
          table_wrapped, {{"rows", 64, "rows of the table", true}}),
      row("pos.left_padding", kPosition, "the first call counts padding as positions, later calls do not",
          pads_counted),
      row("pack.position_reset", FaultGroup::kObjective,
          "rotary positions run on where they should restart with each document", position_not_reset),
      row("alibi.bias", kPosition, "the exponent of the slopes is off by one: head 0 of 8 gets slope 1",
          slopes_off),
      row("alibi.bias/plain", kPosition,
          "one geometric row of slopes for a number of heads that is no power of 2", plain_slopes),
      row("alibi.bias/decode", kPosition, "the bias is lost in calls of one token", lost_in_decode),
  };
  FaultKind stale =
      row("rope.cached_keys_rescaled", kPosition,
          "frequencies follow the current length while cached keys keep the old ones", keys_go_stale);
  stale.is_oracle_only = true;
  rows.push_back(stale);
  return rows;
}

}  // namespace sightline::faults
