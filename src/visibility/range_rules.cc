#include "visibility/range_rules.h"

#include <array>

namespace sightline {

namespace {

using Context = RuleContext;
using Stretch = KeyStretch;

KeyRange whole_if(bool condition, const Stretch& s) {
  return condition ? KeyRange{s.begin, s.end} : KeyRange{};
}

KeyRange all_range(const Context&, const MaskNode&, const Stretch& s) { return whole_if(true, s); }
KeyRange none_range(const Context&, const MaskNode&, const Stretch&) { return {}; }
KeyRange causal_range(const Context& c, const MaskNode&, const Stretch& s) {
  return {s.begin, c.stretches.first_at_or_after(s, c.q.coord.pos + 1)};
}
KeyRange window_range(const Context& c, const MaskNode& leaf, const Stretch& s) {
  return {c.stretches.first_at_or_after(s, c.q.coord.pos - leaf.n + 1), s.end};
}
KeyRange ahead_range(const Context& c, const MaskNode& leaf, const Stretch& s) {
  return {s.begin, c.stretches.first_at_or_after(s, c.q.coord.pos + leaf.n + 1)};
}
KeyRange first_range(const Context& c, const MaskNode& leaf, const Stretch& s) {
  return {s.begin, c.stretches.first_at_or_after(s, s.segment_start + leaf.n)};
}
KeyRange segment_range(const Context& c, const MaskNode&, const Stretch& s) {
  return whole_if(c.q.coord.segment == s.segment, s);
}
KeyRange chunk_range(const Context& c, const MaskNode& leaf, const Stretch& s) {
  if (c.q.coord.segment != s.segment) return {};
  const std::int64_t in_segment = c.q.coord.pos - c.q.coord.segment_start;
  const std::int64_t in_chunk = (in_segment % leaf.n + leaf.n) % leaf.n;
  const std::int64_t chunk_pos = s.segment_start + in_segment - in_chunk;
  return {c.stretches.first_at_or_after(s, chunk_pos), c.stretches.first_at_or_after(s, chunk_pos + leaf.n)};
}
KeyRange span_range(const Context& c, const MaskNode&, const Stretch& s) {
  const TokenCoord& q = c.q.coord;
  return whole_if(q.segment == s.segment && q.span == s.span && q.span != 0, s);
}
KeyRange tree_range(const Context& c, const MaskNode&, const Stretch& s) {
  if (s.tree_node < 0) return whole_if(true, s);  // committed
  std::int32_t node = c.tables.q_node[static_cast<std::size_t>(c.q.row_idx)];
  while (node > s.tree_node) node = c.tables.parent[static_cast<std::size_t>(node)];
  return whole_if(node == s.tree_node, s);
}
KeyRange query_is_range(const Context& c, const MaskNode& leaf, const Stretch& s) {
  return whole_if((c.q.coord.flags >> leaf.n & 1U) != 0, s);
}
KeyRange key_is_range(const Context&, const MaskNode& leaf, const Stretch& s) {
  return whole_if((s.flags >> leaf.n & 1U) != 0, s);
}

struct Row {
  MaskOp op;
  RangeRule rule;
};
constexpr std::array<Row, 12> kRows{{
    {MaskOp::kAll, all_range},
    {MaskOp::kNone, none_range},
    {MaskOp::kCausal, causal_range},
    {MaskOp::kWindow, window_range},
    {MaskOp::kAhead, ahead_range},
    {MaskOp::kFirst, first_range},
    {MaskOp::kSegment, segment_range},
    {MaskOp::kChunk, chunk_range},
    {MaskOp::kSpan, span_range},
    {MaskOp::kTree, tree_range},
    {MaskOp::kQueryIs, query_is_range},
    {MaskOp::kKeyIs, key_is_range},
}};

}  // namespace

RangeRule find_range_rule(MaskOp op) {
  for (const Row& row : kRows) {
    if (row.op == op) return row.rule;
  }
  return nullptr;
}

}  // namespace sightline
