// The table of mask rules: name, argument, and what the analyses may conclude. Adding a rule is one row
// here, one case in leaf_sees (mask.cc), and, where it is a key range, one row in visibility.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "sightline/spec/mask.h"

namespace sightline {

/// What stands in a rule's parentheses.
enum class RuleArgument : std::uint8_t {
  kAbsent,
  kTokens,        // n >= 1
  kTokensOrZero,  // n >= 0
  kBit,           // 0..31
};

struct MaskRule {
  MaskOp op;
  std::string_view name;
  RuleArgument argument;
  bool same_segment;  // seeing proves that both are in one segment
};

inline constexpr std::array<MaskRule, 14> kMaskRules{{
    {MaskOp::kAll, "all", RuleArgument::kAbsent, false},
    {MaskOp::kNone, "none", RuleArgument::kAbsent, true},
    {MaskOp::kCausal, "causal", RuleArgument::kAbsent, false},
    {MaskOp::kWindow, "window", RuleArgument::kTokens, false},
    {MaskOp::kAhead, "ahead", RuleArgument::kTokensOrZero, false},
    {MaskOp::kFirst, "first", RuleArgument::kTokens, false},
    {MaskOp::kSegment, "segment", RuleArgument::kAbsent, true},
    {MaskOp::kChunk, "chunk", RuleArgument::kTokens, true},
    {MaskOp::kSpan, "span", RuleArgument::kAbsent, true},
    {MaskOp::kDilated, "dilated", RuleArgument::kTokens, false},
    {MaskOp::kTree, "tree", RuleArgument::kAbsent, false},
    {MaskOp::kQueryIs, "query_is", RuleArgument::kBit, false},
    {MaskOp::kKeyIs, "key_is", RuleArgument::kBit, false},
    {MaskOp::kDense, "dense", RuleArgument::kAbsent, false},
}};

/// The row of a leaf, or null for operators and numbers that are no MaskOp.
[[nodiscard]] constexpr const MaskRule* find_rule(MaskOp op) {
  for (const auto& rule : kMaskRules) {
    if (rule.op == op) return &rule;
  }
  return nullptr;
}

[[nodiscard]] constexpr const MaskRule* find_rule(std::string_view name) {
  for (const auto& rule : kMaskRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

/// Floor of a / b for b > 0: positions before segment_start fall into chunk -1, not 0.
[[nodiscard]] constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - static_cast<std::int64_t>(a % b < 0);
}

}  // namespace sightline
