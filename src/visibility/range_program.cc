// The interval algebra of MaskProgram: the postfix program over sets of key intervals, stretch by stretch.
#include <algorithm>

#include "visibility/mask_program.h"

namespace sightline {

MaskProgram::MaskProgram(const VisibilityInput& input, const KeyStretches& stretches)
    : input_(input), stretches_(stretches), one_segment_(implies_segment(input.mask)) {
  for (const MaskNode& node : input.mask.nodes) {
    steps_.push_back({node, find_range_rule(node.op)});
    if (is_leaf(node.op) && steps_.back().rule == nullptr) has_ranges_ = false;
  }
  const auto num_kv = static_cast<std::int64_t>(input.kv.size());
  std::size_t stretch = 0;
  for (std::int64_t begin = 0; begin < num_kv; begin += input.tile.kv) {
    while (stretch < stretches.all().size() && stretches.all()[stretch].end <= begin) ++stretch;
    tile_stretches_.push_back(stretch);
  }
}

void MaskProgram::append_ranges(std::int64_t q, std::vector<KeyRange>& out) {
  const RuleContext context{stretches_, input_.tables, input_.q_ref(q)};
  if (!context.q.coord.valid) return;
  const std::size_t own = out.size();
  const auto relevant = one_segment_ ? stretches_.of_segment(context.q.coord.segment) : stretches_.all();
  for (const KeyStretch& stretch : relevant) {
    run_stretch(context, stretch);
    for (const KeyRange& range : intervals_) {
      if (out.size() > own && out.back().end == range.begin) {
        out.back().end = range.end;
      } else {
        out.push_back(range);
      }
    }
  }
}

// Leaves the one value of the program in intervals_.
void MaskProgram::run_stretch(const RuleContext& context, const KeyStretch& stretch) {
  intervals_.clear();
  starts_.clear();
  for (const Step& step : steps_) {
    switch (step.node.op) {
      case MaskOp::kAnd:
        intersect_top();
        break;
      case MaskOp::kOr:
        unite_top();
        break;
      case MaskOp::kNot:
        complement_top(stretch);
        break;
      default: {
        starts_.push_back(intervals_.size());
        const KeyRange range = step.rule(context, step.node, stretch);
        if (range.begin < range.end) intervals_.push_back(range);
      }
    }
  }
}

void MaskProgram::intersect_top() {
  const std::size_t b_begin = starts_.back();
  starts_.pop_back();
  const std::size_t a_begin = starts_.back();
  scratch_.clear();
  for (std::size_t a = a_begin, b = b_begin; a < b_begin && b < intervals_.size();) {
    const KeyRange both{std::max(intervals_[a].begin, intervals_[b].begin),
                        std::min(intervals_[a].end, intervals_[b].end)};
    if (both.begin < both.end) scratch_.push_back(both);
    ++(intervals_[a].end < intervals_[b].end ? a : b);
  }
  intervals_.resize(a_begin);
  intervals_.insert(intervals_.end(), scratch_.begin(), scratch_.end());
}

void MaskProgram::unite_top() {
  const std::size_t b_begin = starts_.back();
  starts_.pop_back();
  const std::size_t a_begin = starts_.back();
  scratch_.clear();
  for (std::size_t a = a_begin, b = b_begin; a < b_begin || b < intervals_.size();) {
    const bool take_a = b == intervals_.size() || (a < b_begin && intervals_[a].begin <= intervals_[b].begin);
    const KeyRange next = intervals_[take_a ? a++ : b++];
    if (!scratch_.empty() && next.begin <= scratch_.back().end) {
      scratch_.back().end = std::max(scratch_.back().end, next.end);
    } else {
      scratch_.push_back(next);
    }
  }
  intervals_.resize(a_begin);
  intervals_.insert(intervals_.end(), scratch_.begin(), scratch_.end());
}

void MaskProgram::complement_top(const KeyStretch& stretch) {
  const std::size_t begin = starts_.back();
  scratch_.clear();
  std::int64_t at = stretch.begin;
  for (std::size_t i = begin; i < intervals_.size(); ++i) {
    if (at < intervals_[i].begin) scratch_.push_back({at, intervals_[i].begin});
    at = intervals_[i].end;
  }
  if (at < stretch.end) scratch_.push_back({at, stretch.end});
  intervals_.resize(begin);
  intervals_.insert(intervals_.end(), scratch_.begin(), scratch_.end());
}

}  // namespace sightline
