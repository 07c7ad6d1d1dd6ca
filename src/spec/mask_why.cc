// Why one pair is visible or not, in words.
#include <cstdlib>

#include "sightline/spec/mask.h"
#include "spec/mask_rules.h"

namespace sightline {

namespace {

// The program's value when each leaf has the given verdict; leaf `flipped` (or none: -1) is inverted.
bool evaluate(const MaskSpec& mask, const std::vector<WhyLeaf>& leaves, int flipped) {
  std::vector<bool> stack;
  int leaf_idx = 0;
  for (const MaskNode& node : mask.nodes) {
    if (is_leaf(node.op)) {
      stack.push_back(leaves[static_cast<std::size_t>(leaf_idx)].sees != (leaf_idx == flipped));
      ++leaf_idx;
    } else if (node.op == MaskOp::kNot) {
      stack.back() = !stack.back();
    } else {
      const bool b = stack.back();
      stack.pop_back();
      stack.back() = node.op == MaskOp::kAnd ? stack.back() && b : stack.back() || b;
    }
  }
  return stack.back();
}

std::string distance_words(std::int64_t back) {
  if (back == 0) return "the key is the query's own position";
  return fmt::format("the key is {} {}", std::llabs(back), back > 0 ? "back" : "ahead");
}

// What the leaf looked at, on this pair.
std::string facts(const MaskNode& leaf, const TokenRef& q, const TokenRef& k) {
  const TokenCoord& qc = q.coord;
  const TokenCoord& kc = k.coord;
  switch (leaf.op) {
    case MaskOp::kAll:
      return "it sees every key";
    case MaskOp::kNone:
      return "it sees no key";
    case MaskOp::kCausal:
    case MaskOp::kWindow:
    case MaskOp::kAhead:
      return distance_words(qc.pos - kc.pos);
    case MaskOp::kFirst:
      return fmt::format("the key is number {} of its segment, from 0", kc.pos - kc.segment_start);
    case MaskOp::kSegment:
      return fmt::format("the query is in segment {}, the key in {}", qc.segment, kc.segment);
    case MaskOp::kChunk:
      if (qc.segment != kc.segment) {
        return fmt::format("the query is in segment {}, the key in {}", qc.segment, kc.segment);
      }
      return fmt::format("the query is in chunk {} of its segment, the key in {}",
                         floor_div(qc.pos - qc.segment_start, leaf.n),
                         floor_div(kc.pos - kc.segment_start, leaf.n));
    case MaskOp::kSpan:
      if (qc.segment != kc.segment) {
        return fmt::format("the query is in segment {}, the key in {}", qc.segment, kc.segment);
      }
      return fmt::format("the query is in span {}, the key in {}; 0 is no span", qc.span, kc.span);
    case MaskOp::kDilated:
      return fmt::format("the key is {} back", qc.pos - kc.pos);
    case MaskOp::kTree:
      return "the draft tree's parents say so";
    case MaskOp::kQueryIs:
      return fmt::format("the query's flags are 0x{:x}", qc.flags);
    case MaskOp::kKeyIs:
      return fmt::format("the key's flags are 0x{:x}", kc.flags);
    case MaskOp::kDense:
      return fmt::format("the caller's matrix at row {}, column {} says so", q.row_idx, k.row_idx);
    default:
      return {};
  }
}

std::string sentence(const Why& why, const TokenRef& q, const TokenRef& k) {
  if (why.padding) {
    if (!q.coord.valid) return "The query is padding, which sees nothing.";
    return fmt::format("Query {} does not see this key: it is padding, which is visible to nobody.",
                       q.coord.pos);
  }
  std::string reasons;
  for (const WhyLeaf& leaf : why.leaves) {
    if (!leaf.decided) continue;
    reasons += fmt::format("{}{} is {} ({})", reasons.empty() ? "" : ", and ", to_string(leaf.leaf),
                           leaf.sees ? "true" : "false", facts(leaf.leaf, q, k));
  }
  if (reasons.empty()) {
    for (const WhyLeaf& leaf : why.leaves) {
      reasons += fmt::format("{}{} is {} ({})", reasons.empty() ? "no rule decides alone: " : ", ",
                             to_string(leaf.leaf), leaf.sees ? "true" : "false", facts(leaf.leaf, q, k));
    }
  }
  return fmt::format("Query {} {} key {}: {}.", q.coord.pos, why.visible ? "sees" : "does not see",
                     k.coord.pos, reasons);
}

}  // namespace

Why why(const MaskSpec& mask, const MaskTables& tables, const TokenRef& q, const TokenRef& k) {
  Why out;
  out.padding = !q.coord.valid || !k.coord.valid;
  for (const MaskNode& node : mask.nodes) {
    if (is_leaf(node.op)) out.leaves.push_back({node, leaf_sees(node, tables, q, k), false});
  }
  if (!out.padding) {
    out.visible = evaluate(mask, out.leaves, -1);
    for (std::size_t i = 0; i < out.leaves.size(); ++i) {
      out.leaves[i].decided = evaluate(mask, out.leaves, static_cast<int>(i)) != out.visible;
    }
  }
  out.text = sentence(out, q, k);
  return out;
}

}  // namespace sightline
