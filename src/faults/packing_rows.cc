// Documents that share a row of tokens and should not read each other.
#include "fault_rows.h"

namespace sightline::faults {
namespace {

Result<void> cross_document(const Fault& fault, AttentionSpec& spec) {
  return replace_leaf(fault, spec, MaskOp::kSegment, MaskOp::kAll);
}

Result<void> rows_for_positions(const Fault&, const AttentionSpec&, reference::Deviation& deviation) {
  deviation.rows_are_positions = true;
  return {};
}

}  // namespace

std::vector<FaultKind> packing_rows() {
  FaultKind by_row =
      row("pack.cross_document/by_row", FaultGroup::kObjective,
          "packed documents read each other, in the order of rows where positions restart", cross_document);
  by_row.on_deviation = rows_for_positions;
  by_row.is_oracle_only = by_row.is_unlikely = true;
  return {
      row("pack.cross_document", FaultGroup::kObjective, "packed documents read each other", cross_document),
      by_row,
  };
}

}  // namespace sightline::faults
