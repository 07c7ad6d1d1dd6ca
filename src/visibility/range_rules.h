// Mask rules as key ranges: within one stretch each of them sees one interval of keys. The other rules
// (dense, dilated) are looked up pair by pair on the bit path.
#pragma once

#include "sightline/spec/mask.h"
#include "visibility/key_stretches.h"

namespace sightline {

/// What a rule may look at, for one query.
struct RuleContext {
  const KeyStretches& stretches;
  const MaskTables& tables;
  TokenRef q;
};

/// Keys of `stretch` that context.q sees by one leaf; begin >= end: none.
using RangeRule = KeyRange (*)(const RuleContext& context, const MaskNode& leaf, const KeyStretch& stretch);

/// Null for rules that are no range, and for operators.
[[nodiscard]] RangeRule find_range_rule(MaskOp op);

}  // namespace sightline
