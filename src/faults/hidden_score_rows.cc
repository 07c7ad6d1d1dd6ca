// What stands in place of a hidden score, and of a row all of whose scores are hidden. Which ones are hidden
// is in visibility_rows.cc.
#include "fault_rows.h"

namespace sightline::faults {
namespace {

using reference::Deviation;

Result<void> fill_value(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  deviation.fill_value = fault.value("fill");
  return {};
}

// What is hardly less than 0 stands for nothing hidden: the mask is lost. A mask of 0 and 1 that is added is
// a kind of its own, and lowers hidden scores by 1.
Result<void> fill_added(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  constexpr double kWeakest = -1.5;
  if (fault.value("fill") > kWeakest) return not_applicable(fault, "this hides nothing");
  deviation.fill_is_added = true;
  return fill_value(fault, spec, deviation);
}

// A fill that only wins where it is alone: every score of the row is the same number.
Result<void> empty_row_mean(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.fill_value = -1e30;
  return {};
}

Result<void> empty_row_nan(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.empty_row_is_nan = true;
  return {};
}

}  // namespace

std::vector<FaultKind> hidden_score_rows() {
  constexpr FaultGroup kGroup = FaultGroup::kVisibility;
  return {
      row("mask.fill_value", kGroup, "hidden scores are a finite number that can win", fill_value,
          {{"fill", -10, "the number"}}),
      row("mask.fill_value/added", kGroup, "what is added to hidden scores is too weak", fill_added,
          {{"fill", -10, "the number"}}),
      row("mask.fully_masked_row", kGroup, "a query that sees no key gives NaN instead of 0", empty_row_nan),
      row("mask.fully_masked_row/mean", kGroup,
          "a query that sees no key gives the mean of all values instead of 0", empty_row_mean),
  };
}

}  // namespace sightline::faults
