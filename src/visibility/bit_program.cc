// The bit path of MaskProgram: the same postfix program over the 128 keys of one tile at a time.
#include <algorithm>

#include "visibility/mask_program.h"

namespace sightline {

namespace {

// Bits first..last-1 of a word, 0 <= first < last <= 64.
std::uint64_t word_bits(std::int64_t first, std::int64_t last) {
  return (~std::uint64_t{0} << first) & (~std::uint64_t{0} >> (64 - last));
}

void set_bits(BitRow& row, std::int64_t first, std::int64_t last) {
  for (std::int64_t w = 0; w < 2; ++w) {
    const std::int64_t begin = std::max(first - 64 * w, std::int64_t{0});
    const std::int64_t end = std::min(last - 64 * w, std::int64_t{64});
    if (begin < end) row.words[w] |= word_bits(begin, end);
  }
}

}  // namespace

BitRow MaskProgram::leaf_bits(const RuleContext& context, const Step& step, std::int64_t kv_tile) const {
  BitRow out;
  const std::int64_t tile_begin = kv_tile * input_.tile.kv;
  const std::int64_t tile_end =
      std::min(tile_begin + input_.tile.kv, static_cast<std::int64_t>(input_.kv.size()));
  const auto stretches = stretches_.all();
  for (auto i = tile_stretches_[static_cast<std::size_t>(kv_tile)];
       i < stretches.size() && stretches[i].begin < tile_end; ++i) {
    const std::int64_t begin = std::max(stretches[i].begin, tile_begin);
    const std::int64_t end = std::min(stretches[i].end, tile_end);
    if (step.rule != nullptr) {
      const KeyRange range = step.rule(context, step.node, stretches[i]);
      set_bits(out, std::max(range.begin, begin) - tile_begin, std::min(range.end, end) - tile_begin);
      continue;
    }
    for (std::int64_t key = begin; key < end; ++key) {
      if (leaf_sees(step.node, input_.tables, context.q, input_.kv_ref(key))) {
        set_bits(out, key - tile_begin, key - tile_begin + 1);
      }
    }
  }
  return out;
}

BitRow MaskProgram::bits(std::int64_t q, std::int64_t kv_tile) {
  const RuleContext context{stretches_, input_.tables, input_.q_ref(q)};
  if (!context.q.coord.valid) return {};
  bit_stack_.clear();
  for (const Step& step : steps_) {
    if (is_leaf(step.node.op)) {
      bit_stack_.push_back(leaf_bits(context, step, kv_tile));
      continue;
    }
    BitRow top = bit_stack_.back();
    if (step.node.op != MaskOp::kNot) bit_stack_.pop_back();
    BitRow& value = bit_stack_.back();
    for (int w = 0; w < 2; ++w) {
      if (step.node.op == MaskOp::kAnd) value.words[w] &= top.words[w];
      if (step.node.op == MaskOp::kOr) value.words[w] |= top.words[w];
      if (step.node.op == MaskOp::kNot) value.words[w] = ~top.words[w];
    }
  }
  // `!` also turned on the bits of padding and of keys that do not exist.
  const BitRow exists = leaf_bits(context, {{MaskOp::kAll, 0}, find_range_rule(MaskOp::kAll)}, kv_tile);
  BitRow out = bit_stack_.back();
  for (int w = 0; w < 2; ++w) out.words[w] &= exists.words[w];
  return out;
}

}  // namespace sightline
