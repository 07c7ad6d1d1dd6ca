// The definition of visibility, its builders and its checks. Text form, analyses and pictures are beside it.
#include "sightline/spec/mask.h"

#include "spec/mask_rules.h"

namespace sightline {

namespace {

MaskSpec join(const MaskSpec& a, const MaskSpec& b, MaskOp op) {
  MaskSpec out{a.nodes};
  out.nodes.insert(out.nodes.end(), b.nodes.begin(), b.nodes.end());
  out.nodes.push_back({op, 0});
  return out;
}

bool tree_sees(const MaskTables& tables, const TokenRef& q, const TokenRef& k) {
  const std::int32_t k_node = tables.kv_node[static_cast<std::size_t>(k.row_idx)];
  if (k_node < 0) return true;  // committed
  for (std::int32_t node = tables.q_node[static_cast<std::size_t>(q.row_idx)]; node >= k_node;
       node = tables.parent[static_cast<std::size_t>(node)]) {
    if (node == k_node) return true;
  }
  return false;
}

}  // namespace

MaskSpec mask_rule(MaskOp op, std::int64_t n) { return MaskSpec{{{op, n}}}; }
MaskSpec operator&(const MaskSpec& a, const MaskSpec& b) { return join(a, b, MaskOp::kAnd); }
MaskSpec operator|(const MaskSpec& a, const MaskSpec& b) { return join(a, b, MaskOp::kOr); }
MaskSpec operator!(const MaskSpec& a) {
  MaskSpec out{a.nodes};
  out.nodes.push_back({MaskOp::kNot, 0});
  return out;
}

bool leaf_sees(const MaskNode& leaf, const MaskTables& tables, const TokenRef& q, const TokenRef& k) {
  const TokenCoord& qc = q.coord;
  const TokenCoord& kc = k.coord;
  const std::int64_t n = leaf.n;
  switch (leaf.op) {
    case MaskOp::kAll:
      return true;
    case MaskOp::kNone:
      return false;
    case MaskOp::kCausal:
      return kc.pos <= qc.pos;
    case MaskOp::kWindow:
      return qc.pos - kc.pos < n;
    case MaskOp::kAhead:
      return kc.pos - qc.pos <= n;
    case MaskOp::kFirst:
      return kc.pos - kc.segment_start < n;
    case MaskOp::kSegment:
      return qc.segment == kc.segment;
    case MaskOp::kChunk:
      return qc.segment == kc.segment &&
             floor_div(qc.pos - qc.segment_start, n) == floor_div(kc.pos - kc.segment_start, n);
    case MaskOp::kSpan:
      return qc.segment == kc.segment && qc.span == kc.span && qc.span != 0;
    case MaskOp::kDilated:
      return (qc.pos - kc.pos) % n == 0;
    case MaskOp::kTree:
      return tree_sees(tables, q, k);
    case MaskOp::kQueryIs:
      return (qc.flags >> n & 1U) != 0;
    case MaskOp::kKeyIs:
      return (kc.flags >> n & 1U) != 0;
    case MaskOp::kDense:
      return tables.dense(q.row_idx, k.row_idx) != 0;
    case MaskOp::kAnd:
    case MaskOp::kOr:
    case MaskOp::kNot:
      break;  // no leaves
  }
  return false;
}

bool is_visible(const MaskSpec& mask, const MaskTables& tables, const TokenRef& q, const TokenRef& k) {
  if (!q.coord.valid || !k.coord.valid) return false;
  std::uint64_t stack = 0;  // newest value in bit 0; kMaxMaskDepth values fit
  const auto pop = [&] {
    const bool v = (stack & 1U) != 0;
    stack >>= 1;
    return v;
  };
  for (const MaskNode& node : mask.nodes) {
    bool value = false;
    if (node.op == MaskOp::kAnd || node.op == MaskOp::kOr) {
      const bool b = pop();
      const bool a = pop();
      value = node.op == MaskOp::kAnd ? a && b : a || b;
    } else if (node.op == MaskOp::kNot) {
      value = !pop();
    } else {
      value = leaf_sees(node, tables, q, k);
    }
    stack = stack << 1 | static_cast<std::uint64_t>(value);
  }
  return pop();
}

bool is_leaf(MaskOp op) { return find_rule(op) != nullptr; }

bool uses(const MaskSpec& mask, MaskOp op) {
  for (const MaskNode& node : mask.nodes) {
    if (node.op == op) return true;
  }
  return false;
}

namespace {

Result<void> validate_argument(const MaskNode& node, const MaskRule& rule) {
  const auto refuse = [&](std::string_view expected) {
    return fail(ErrorKind::kInvalidArgument, "mask: {}({}): expected {}", rule.name, node.n, expected);
  };
  switch (rule.argument) {
    case RuleArgument::kAbsent:
      if (node.n != 0) return refuse("no number");
      break;
    case RuleArgument::kTokens:
    case RuleArgument::kTokensOrZero:
      if (node.n < (rule.argument == RuleArgument::kTokens ? 1 : 0)) {
        return refuse(rule.argument == RuleArgument::kTokens ? "1 or more" : "0 or more");
      }
      if (node.n > kMaxMaskTokens) return refuse("at most 2^60");
      break;
    case RuleArgument::kBit:
      if (node.n < 0 || node.n > 31) return refuse("a bit from 0 to 31");
      break;
  }
  return {};
}

}  // namespace

Result<void> validate(const MaskSpec& mask) {
  if (mask.nodes.size() > static_cast<std::size_t>(kMaxMaskNodes)) {
    return fail(ErrorKind::kInvalidArgument, "mask: {} rules and operators, at most {}", mask.nodes.size(),
                kMaxMaskNodes);
  }
  int depth = 0;
  for (std::size_t i = 0; i < mask.nodes.size(); ++i) {
    const MaskNode& node = mask.nodes[i];
    const MaskRule* rule = find_rule(node.op);
    int taken = 0;
    if (rule != nullptr) {
      SIGHTLINE_CHECK(validate_argument(node, *rule));
    } else if (node.op == MaskOp::kNot) {
      taken = 1;
    } else if (node.op == MaskOp::kAnd || node.op == MaskOp::kOr) {
      taken = 2;
    } else {
      return fail(ErrorKind::kInvalidArgument, "mask: node {} has operator {}, which does not exist", i,
                  static_cast<int>(node.op));
    }
    if (rule == nullptr && node.n != 0) {
      return fail(ErrorKind::kInvalidArgument, "mask: node {} is an operator with n = {}, expected 0", i,
                  node.n);
    }
    if (depth < taken) {
      return fail(ErrorKind::kInvalidArgument, "mask: node {} takes {} values, {} are there", i, taken,
                  depth);
    }
    depth += 1 - taken;
    if (depth > kMaxMaskDepth) {
      return fail(ErrorKind::kInvalidArgument, "mask: nested deeper than {} values", kMaxMaskDepth);
    }
  }
  if (depth != 1) {
    return fail(ErrorKind::kInvalidArgument, "mask: the program leaves {} values, expected 1", depth);
  }
  return {};
}

namespace {

Result<void> validate_nodes(std::string_view name, std::span<const std::int32_t> nodes, std::int64_t num_rows,
                            std::size_t num_tree_nodes) {
  if (static_cast<std::int64_t>(nodes.size()) < num_rows) {
    return fail(ErrorKind::kInvalidArgument, "mask tables: {} has {} rows, tree needs {}", name, nodes.size(),
                num_rows);
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] < -1 || nodes[i] >= static_cast<std::int64_t>(num_tree_nodes)) {
      return fail(ErrorKind::kInvalidArgument, "mask tables: {}[{}] = {}, the tree has {} nodes", name, i,
                  nodes[i], num_tree_nodes);
    }
  }
  return {};
}

}  // namespace

Result<void> validate_tables(const MaskSpec& mask, const MaskTables& tables, std::int64_t num_q_rows,
                             std::int64_t num_kv_rows) {
  if (uses(mask, MaskOp::kDense) && num_q_rows > 0 && num_kv_rows > 0) {
    const auto& shape = tables.dense.shape;
    if (tables.dense.data == nullptr || shape[0] < num_q_rows || shape[1] < num_kv_rows) {
      return fail(ErrorKind::kInvalidArgument, "mask tables: dense is [{}, {}]{}, expected [{}, {}] or more",
                  shape[0], shape[1], tables.dense.data == nullptr ? " without data" : "", num_q_rows,
                  num_kv_rows);
    }
  }
  if (uses(mask, MaskOp::kTree)) {
    for (std::size_t i = 0; i < tables.parent.size(); ++i) {
      if (tables.parent[i] < -1 || tables.parent[i] >= static_cast<std::int64_t>(i)) {
        return fail(ErrorKind::kInvalidArgument, "mask tables: parent[{}] = {}, expected -1 to {}", i,
                    tables.parent[i], static_cast<std::int64_t>(i) - 1);
      }
    }
    SIGHTLINE_CHECK(validate_nodes("q_node", tables.q_node, num_q_rows, tables.parent.size()));
    SIGHTLINE_CHECK(validate_nodes("kv_node", tables.kv_node, num_kv_rows, tables.parent.size()));
  }
  return {};
}

}  // namespace sightline
