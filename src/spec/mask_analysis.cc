// What the program alone proves: each property is carried through the postfix program for the value and
// for its negation, so that `!` swaps the two. Sound, not complete.
#include <algorithm>
#include <limits>

#include "sightline/spec/mask.h"
#include "spec/mask_rules.h"

namespace sightline {

namespace {

// Runs a postfix program over pairs (what seeing proves, what not seeing proves).
// meet: both operands hold; join: one of them holds, unknown which.
template <typename T, typename Leaf, typename Meet, typename Join>
T interpret(const MaskSpec& mask, Leaf leaf, Meet meet, Join join) {
  struct Value {
    T seen, unseen;
  };
  std::vector<Value> stack;
  for (const MaskNode& node : mask.nodes) {
    if (is_leaf(node.op)) {
      stack.push_back({leaf(node, false), leaf(node, true)});
    } else if (node.op == MaskOp::kNot) {
      std::swap(stack.back().seen, stack.back().unseen);
    } else {
      const Value b = stack.back();
      stack.pop_back();
      Value& a = stack.back();
      if (node.op == MaskOp::kAnd) {
        a = {meet(a.seen, b.seen), join(a.unseen, b.unseen)};
      } else {
        a = {join(a.seen, b.seen), meet(a.unseen, b.unseen)};
      }
    }
  }
  return stack.back().seen;
}

bool either(bool a, bool b) { return a || b; }
bool both(bool a, bool b) { return a && b; }

// Pairs that may be visible: q.pos - k.pos < window, or k.pos - k.segment_start < num_first.
struct Reach {
  std::int64_t window, num_first;
};
constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

// Tokens kept; unbounded stays so. Decides which of several sound bounds is the tightest.
std::int64_t cost(Reach reach) {
  return reach.window > kUnbounded - reach.num_first ? kUnbounded : reach.window + reach.num_first;
}

// (W1 or F1) and (W2 or F2) lies in each of the candidates.
Reach meet_reach(Reach a, Reach b) {
  Reach best = a;
  for (const Reach candidate : {b, Reach{std::min(a.window, b.window), std::max(a.num_first, b.num_first)},
                                Reach{std::max(a.window, b.window), std::min(a.num_first, b.num_first)}}) {
    if (cost(candidate) < cost(best)) best = candidate;
  }
  return best;
}

Reach join_reach(Reach a, Reach b) {
  return {std::max(a.window, b.window), std::max(a.num_first, b.num_first)};
}

Reach leaf_reach(const MaskNode& leaf, bool negated) {
  const Reach nothing{0, 0};
  const Reach anything{kUnbounded, 0};
  switch (leaf.op) {
    case MaskOp::kAll:
      return negated ? nothing : anything;
    case MaskOp::kNone:
      return negated ? anything : nothing;
    // Not causal and not ahead(n) are later keys only, which lie less than 0 back.
    case MaskOp::kCausal:
    case MaskOp::kAhead:
      return negated ? nothing : anything;
    case MaskOp::kWindow:
    case MaskOp::kChunk:
      return negated ? anything : Reach{leaf.n, 0};
    case MaskOp::kFirst:
      return negated ? anything : Reach{0, leaf.n};
    default:
      return anything;
  }
}

}  // namespace

bool is_causal(const MaskSpec& mask) {
  const auto leaf = [](const MaskNode& node, bool negated) {
    if (negated) return node.op == MaskOp::kAll || node.op == MaskOp::kWindow;  // n >= 1 back
    return node.op == MaskOp::kNone || node.op == MaskOp::kCausal ||
           (node.op == MaskOp::kAhead && node.n == 0);
  };
  return interpret<bool>(mask, leaf, either, both);
}

bool implies_segment(const MaskSpec& mask) {
  const auto leaf = [](const MaskNode& node, bool negated) {
    return negated ? node.op == MaskOp::kAll : find_rule(node.op)->same_segment;
  };
  return interpret<bool>(mask, leaf, either, both);
}

ReachBack reach_back(const MaskSpec& mask) {
  const Reach reach = interpret<Reach>(mask, leaf_reach, meet_reach, join_reach);
  if (reach.window == kUnbounded) return {};
  return {true, reach.window, reach.num_first};
}

}  // namespace sightline
