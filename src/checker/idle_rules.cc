#include "checker/idle_rules.h"

#include <algorithm>

namespace sightline::checker {
namespace {

constexpr std::int64_t kMostPairs = std::int64_t{1} << 24;

bool are_same(std::span<const Observation> observations, const MaskSpec& a, const MaskSpec& b) {
  return std::ranges::all_of(observations, [&](const Observation& o) {
    for (std::int64_t i = 0; i < o.q_len(); ++i) {
      for (std::int64_t j = 0; j < o.kv_len(); ++j) {
        if (sees(o, a, i, j) != sees(o, b, i, j)) return false;
      }
    }
    return true;
  });
}

}  // namespace

std::vector<std::string> idle_rules(std::span<const Observation> observations) {
  const MaskSpec& mask = observations.front().spec.mask;
  const bool is_large = std::ranges::any_of(
      observations, [](const Observation& o) { return o.q_len() * o.kv_len() > kMostPairs; });
  if (is_large || uses(mask, MaskOp::kDense) || uses(mask, MaskOp::kTree)) return {};
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < mask.nodes.size(); ++i) {
    const MaskNode& node = mask.nodes[i];
    if (!is_leaf(node.op) || node.op == MaskOp::kAll) continue;
    if (node.op == MaskOp::kSpan) {
      const bool has_span = std::ranges::any_of(observations, [](const Observation& o) {
        return std::ranges::any_of(o.kv_coords, [](const TokenCoord& c) { return c.span != 0; });
      });
      if (!has_span) lines.push_back("span: no token is in a span");
      continue;
    }
    MaskSpec without = mask;
    without.nodes[i].op = MaskOp::kAll;
    if (are_same(observations, mask, without)) {
      lines.push_back(fmt::format("{} hides nothing among these tokens", to_string(node)));
    }
  }
  return lines;
}

}  // namespace sightline::checker
