#include "visibility/key_stretches.h"

#include <algorithm>

namespace sightline {

namespace {

// Which fields of a key the mask looks at, as bit masks, so that the pass over the keys has no branches.
struct Looks {
  std::uint64_t segment_start = 0;
  std::uint32_t segment = 0, span = 0, flags = 0;
};

Looks looks_of(const MaskSpec& mask) {
  Looks looks;
  for (const MaskNode& node : mask.nodes) {
    if (node.op == MaskOp::kSegment || node.op == MaskOp::kChunk || node.op == MaskOp::kSpan)
      looks.segment = ~0U;
    if (node.op == MaskOp::kFirst || node.op == MaskOp::kChunk) looks.segment_start = ~std::uint64_t{0};
    if (node.op == MaskOp::kSpan) looks.span = ~0U;
    if (node.op == MaskOp::kKeyIs) looks.flags |= 1U << node.n;
  }
  return looks;
}

// Not 0 when the two keys differ in something the mask looks at, or when `k` is padding.
std::uint64_t differs(const TokenCoord& first, const TokenCoord& k, const Looks& looks) {
  return (static_cast<std::uint64_t>(k.segment_start ^ first.segment_start) & looks.segment_start) |
         (static_cast<std::uint32_t>(k.segment ^ first.segment) & looks.segment) |
         (static_cast<std::uint32_t>(k.span ^ first.span) & looks.span) |
         ((k.flags ^ first.flags) & looks.flags) | static_cast<std::uint64_t>(!k.valid);
}

// Not 0 when pos is not first.pos + distance. Unsigned: positions are not checked yet.
std::uint64_t leaves_line(const TokenCoord& first, const TokenCoord& k, std::int64_t distance) {
  return static_cast<std::uint64_t>(k.pos) - static_cast<std::uint64_t>(first.pos) -
         static_cast<std::uint64_t>(distance);
}

// End of the run from `begin` with pos = first.pos + i and equal fields. In blocks without branches: a
// decode step walks the whole cache through here.
std::int64_t dense_end(std::span<const TokenCoord> kv, std::int64_t begin, const Looks& looks) {
  constexpr std::int64_t kBlock = 64;
  const auto num_kv = static_cast<std::int64_t>(kv.size());
  const TokenCoord* key = kv.data();
  const TokenCoord first = key[begin];
  std::int64_t at = begin + 1;
  for (; at + kBlock <= num_kv; at += kBlock) {
    std::uint64_t any = 0;
    for (std::int64_t i = at; i < at + kBlock; ++i) {
      any |= differs(first, key[i], looks) | leaves_line(first, key[i], i - begin);
    }
    if (any != 0) break;
  }
  while (at < num_kv && (differs(first, key[at], looks) | leaves_line(first, key[at], at - begin)) == 0) ++at;
  return at;
}

bool in_bounds(std::int64_t pos) { return pos >= -kMaxPosition && pos <= kMaxPosition; }

// A node of the draft tree sees its ancestors only, which no interval of positions says: each node becomes
// a stretch of one key.
std::vector<KeyStretch> split_by_tree(const std::vector<KeyStretch>& stretches, const MaskTables& tables,
                                      std::span<const TokenCoord> kv,
                                      std::span<const std::int64_t> kv_row_idx) {
  std::vector<KeyStretch> out;
  for (const KeyStretch& stretch : stretches) {
    bool extend = false;
    for (std::int64_t i = stretch.begin; i < stretch.end; ++i) {
      const std::int64_t row_idx = kv_row_idx.empty() ? i : kv_row_idx[static_cast<std::size_t>(i)];
      const std::int32_t node = tables.kv_node[static_cast<std::size_t>(row_idx)];
      if (!extend || node >= 0) {
        KeyStretch part = stretch;
        part.begin = i;
        part.first_pos = kv[static_cast<std::size_t>(i)].pos;
        part.tree_node = node;
        out.push_back(part);
      }
      out.back().end = i + 1;
      extend = node < 0;
    }
  }
  return out;
}

}  // namespace

Result<KeyStretches> KeyStretches::build(const MaskSpec& mask, const MaskTables& tables,
                                         std::span<const TokenCoord> kv,
                                         std::span<const std::int64_t> kv_row_idx) {
  KeyStretches out;
  out.kv_ = kv;
  const Looks looks = looks_of(mask);
  const auto num_kv = static_cast<std::int64_t>(kv.size());
  const TokenCoord* key = kv.data();
  for (std::int64_t begin = 0; begin < num_kv;) {
    const TokenCoord& first = key[begin];
    if (!first.valid) {
      ++begin;
      continue;
    }
    KeyStretch stretch{
        begin,      dense_end(kv, begin, looks), first.pos, first.segment_start, first.segment, first.span,
        first.flags};
    while (stretch.end < num_kv && differs(first, key[stretch.end], looks) == 0 &&
           key[stretch.end].pos >= key[stretch.end - 1].pos) {
      stretch.dense = false;
      ++stretch.end;
    }
    // Rising positions: the ends bound all of them.
    if (!in_bounds(first.pos) || !in_bounds(key[stretch.end - 1].pos) || !in_bounds(first.segment_start)) {
      return fail(ErrorKind::kInvalidArgument,
                  "build_visibility: keys {} to {} have positions {} to {} and segment start {}, expected "
                  "within 2^60",
                  begin, stretch.end - 1, first.pos, key[stretch.end - 1].pos, first.segment_start);
    }
    begin = stretch.end;
    out.stretches_.push_back(stretch);
  }
  if (uses(mask, MaskOp::kTree)) out.stretches_ = split_by_tree(out.stretches_, tables, kv, kv_row_idx);

  const auto by_segment = [](const KeyStretch& a, const KeyStretch& b) { return a.segment < b.segment; };
  if (implies_segment(mask) && !std::is_sorted(out.stretches_.begin(), out.stretches_.end(), by_segment)) {
    out.by_segment_ = out.stretches_;
    std::stable_sort(out.by_segment_.begin(), out.by_segment_.end(), by_segment);
  }
  return out;
}

std::span<const KeyStretch> KeyStretches::of_segment(std::int32_t segment) const {
  const auto& sorted = by_segment_.empty() ? stretches_ : by_segment_;
  const auto begin =
      std::lower_bound(sorted.begin(), sorted.end(), segment,
                       [](const KeyStretch& s, std::int32_t value) { return s.segment < value; });
  auto end = begin;
  while (end != sorted.end() && end->segment == segment) ++end;
  return {begin, end};
}

std::int64_t KeyStretches::first_at_or_after(const KeyStretch& stretch, std::int64_t pos) const {
  if (stretch.dense) return std::clamp(stretch.begin + (pos - stretch.first_pos), stretch.begin, stretch.end);
  const auto* begin = kv_.data() + stretch.begin;
  const auto* end = kv_.data() + stretch.end;
  const auto* at = std::lower_bound(begin, end, pos,
                                    [](const TokenCoord& k, std::int64_t value) { return k.pos < value; });
  return stretch.begin + (at - begin);
}

}  // namespace sightline
