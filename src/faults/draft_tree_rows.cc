// A draft tree that is verified under a wrong mask or with wrong positions.
#include "fault_rows.h"

namespace sightline::faults {
namespace {

using reference::Deviation;
using reference::DraftTree;

Result<void> needs_tree(const Fault& fault, const AttentionSpec& spec) {
  if (uses(spec.mask, MaskOp::kTree)) return {};
  return not_applicable(fault, fmt::format("the mask '{}' has no tree", to_string(spec.mask)));
}

Result<void> by_rows(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_tree(fault, spec));
  deviation.draft_tree = DraftTree::kRows;
  return {};
}

Result<void> committed_unseen(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_tree(fault, spec));
  deviation.draft_tree = DraftTree::kAncestorsAlone;
  return {};
}

// A node stands at its depth, so that causality hides its descendants alone.
Result<void> by_depth(const Fault& fault, AttentionSpec& spec) {
  return replace_leaf(fault, spec, MaskOp::kTree, MaskOp::kCausal);
}

Result<void> unmasked(const Fault& fault, AttentionSpec& spec) {
  if (uses(spec.mask, MaskOp::kCausal)) return not_applicable(fault, "the mask is causal besides");
  return replace_leaf(fault, spec, MaskOp::kTree, MaskOp::kAll);
}

// Drafts follow each other as the tokens of a text do.
Result<void> position_is_row(const Fault&, CallCoords& call) {
  const auto renumber = [&](std::vector<TokenCoord>& coords, std::vector<std::int64_t>& rope_pos) {
    const std::size_t first = coords.size() - static_cast<std::size_t>(call.num_drafts);
    for (std::size_t i = first; i < coords.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i - first);
      coords[i].pos = coords[first].pos + row;
      rope_pos[i] = rope_pos[first] + row;
    }
  };
  if (call.num_drafts == 0) return {};
  renumber(call.q_coords, call.q_rope_pos);
  renumber(call.kv_coords, call.kv_rope_pos);
  return {};
}

Result<void> has_tree(const Fault& fault, const AttentionSpec& spec, Deviation&) {
  return needs_tree(fault, spec);
}

}  // namespace

std::vector<FaultKind> draft_tree_rows() {
  constexpr FaultGroup kGroup = FaultGroup::kVisibility;
  std::vector<FaultKind> rows = {
      row("mask.tree_speculative/siblings", kGroup,
          "drafts see all drafts before them in the row, siblings among them", by_rows),
      row("mask.tree_speculative/by_depth", kGroup,
          "drafts see all drafts of their depth and below it, whatever branch they are of", by_depth),
      row("mask.tree_speculative/unmasked", kGroup, "drafts see the whole tree", unmasked),
      row("mask.tree_speculative/committed_unseen", kGroup,
          "drafts see their branch and not the committed tokens", committed_unseen),
      row("mask.tree_speculative/positions", kGroup,
          "a draft stands at its row in the tree's order instead of its depth", position_is_row),
  };
  rows.back().on_deviation = has_tree;
  for (FaultKind& kind : rows) kind.is_oracle_only = true;
  return rows;
}

}  // namespace sightline::faults
