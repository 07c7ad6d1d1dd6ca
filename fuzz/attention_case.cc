#include "attention_case.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace sightline {

namespace {

using testing::random_in;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

MaskNode read_leaf(FuzzInput& in) {
  const auto op = in.pick(testing::kAllOps);
  switch (op) {
    case MaskOp::kWindow:
    case MaskOp::kFirst:
    case MaskOp::kChunk:
    case MaskOp::kDilated:
      return {op, 1 + in.below(in.one_in(8) ? 200 : 9)};
    case MaskOp::kAhead:
      return {op, in.below(7)};
    case MaskOp::kQueryIs:
    case MaskOp::kKeyIs:
      return {op, in.below(3)};
    default:
      return {op, 0};
  }
}

/// A mask that models have, or a program of any nodes.
MaskSpec read_mask(FuzzInput& in) {
  constexpr std::array kKnown{"causal",
                              "causal & window(9)",
                              "causal & (window(20) | first(4))",
                              "(causal | span) & window(30) & ahead(29)",
                              "causal & segment",
                              "causal & chunk(16)",
                              "causal & tree",
                              "all"};
  if (in.flag()) return parse_mask(in.pick(kKnown)).value();
  MaskSpec mask;
  mask.nodes.clear();
  std::int64_t depth = 0;
  const std::int64_t num_nodes = in.between(1, 9);
  for (std::int64_t i = 0; i < num_nodes; ++i) {
    const std::int64_t kind = in.below(8);
    if (kind == 0 && depth > 0) {
      mask.nodes.push_back({MaskOp::kNot, 0});
    } else if (kind < 4 && depth > 1) {
      mask.nodes.push_back({kind == 1 ? MaskOp::kOr : MaskOp::kAnd, 0});
      --depth;
    } else {
      mask.nodes.push_back(read_leaf(in));
      ++depth;
    }
  }
  for (; depth > 1; --depth) mask.nodes.push_back({MaskOp::kAnd, 0});
  return mask;
}

void read_rope(FuzzInput& in, AttentionSpec& spec) {
  RopeSpec& rope = spec.rope;
  rope.pairing = static_cast<RopePairing>(in.below(3));
  if (rope.pairing == RopePairing::kNone || spec.heads.qk_head_dim < 2) {
    rope.pairing = RopePairing::kNone;
    return;
  }
  rope.rotary_dim = 2 * static_cast<int>(in.between(1, spec.heads.qk_head_dim / 2));
  constexpr std::array kThetas{10000.0, 100.0, 500000.0, 1.5};
  rope.theta = in.pick(kThetas);
  if (in.one_in(3)) {
    rope.scaling.kind = static_cast<RopeScalingKind>(in.below(8));
    rope.scaling.factor = 1.0 + static_cast<double>(in.below(64)) / 8.0;
    rope.scaling.original_context = in.between(2, 4000);
    for (int i = 0; i < rope.rotary_dim / 2; ++i) {
      rope.scaling.short_divisors.push_back(1.0 + i);
      rope.scaling.long_divisors.push_back(1.0 + 2 * i);
    }
    if (rope.rotary_dim == 2 &&  // their exponent d / (d - 2) has no value here
        (rope.scaling.kind == RopeScalingKind::kNtk || rope.scaling.kind == RopeScalingKind::kDynamicNtk)) {
      rope.scaling.kind = RopeScalingKind::kNone;
    }
  }
  if (in.one_in(4)) rope.cos_sin_magnitude = 1.25;
  if (in.one_in(3)) rope.cache_stage = CacheStage::kBeforeRotation;
  const ReachBack reach = reach_back(spec.mask);
  if (reach.bounded && reach.num_first > 0 && in.flag()) rope.position_policy = PositionPolicy::kInCache;
}

void read_score(FuzzInput& in, AttentionSpec& spec) {
  const std::uint8_t parts = in.byte();
  ScoreSpec& score = spec.score;
  if ((parts & 1) != 0) score.softmax_scale = static_cast<double>(in.between(1, 32)) / 16.0;
  if ((parts & 2) != 0) score.logit_softcap = static_cast<double>(in.between(1, 50));
  if ((parts & 4) != 0) score.alibi_slopes = alibi_slopes(spec.heads.num_q_heads);
  if ((parts & 8) != 0) {
    for (int h = 0; h < spec.heads.num_q_heads; ++h) {
      const std::int64_t x = in.between(-20, 20);
      score.sink_logits.push_back(x == 20 ? -std::numeric_limits<double>::infinity()
                                          : static_cast<double>(x) / 2.0);
    }
  }
  if ((parts & 0x30) == 0x30) {
    score.dropout = {static_cast<double>(in.between(1, 9)) / 10.0, in.bits(1), in.below(4)};
  }
}

CaseSequence read_sequence(FuzzInput& in) {
  CaseSequence s;
  Rng rng(in.bits(2));
  const std::int64_t num_kv = in.below(in.one_in(6) ? 300 : 40);
  s.kv = testing::random_sequence(rng, num_kv);
  const std::uint8_t how = in.byte();
  // Queries: the last of the keys (a chunk or a decode step), or others.
  s.q = (how & 3) == 3 || s.kv.empty() ? testing::random_sequence(rng, 9) : s.kv;
  const std::int64_t num_q = 1 + in.below(in.one_in(8) ? 40 : 8);
  if (std::ssize(s.q) > num_q) s.q.erase(s.q.begin(), s.q.end() - num_q);
  if ((how & 4) != 0) testing::disturb(rng, s.kv);
  if ((how & 24) == 24) testing::disturb(rng, s.q);
  const std::int64_t start = 20 + ((how & 0x60) == 0x60 ? in.below(2'000'000'000) : 0);
  for (auto* coords : {&s.q, &s.kv}) {
    for (TokenCoord& c : *coords) {
      c.pos += start;
      c.segment_start += start;
    }
  }
  if ((how & 0x80) != 0) {  // what lay between the keys and the queries is gone
    const std::int64_t gap = in.below(40'000);
    for (TokenCoord& c : s.q) c.pos += gap;
  }
  for (std::int64_t i = in.below(4); i > 0 && !s.kv.empty(); --i) {
    auto& to = in.flag() ? s.kv : s.q;
    TokenCoord& c = to[at(in.below(std::ssize(to)))];
    const std::uint8_t value = in.byte();
    c.valid = c.valid && (value & 0x80) == 0;
    c.flags = value & 7;
    c.span = value >> 3 & 3;
  }
  if (in.one_in(4)) {
    for (const TokenCoord& c : s.q) s.q_rope_pos.push_back(c.pos - c.segment_start + random_in(rng, 0, 3));
    for (const TokenCoord& c : s.kv) s.kv_rope_pos.push_back(c.pos - c.segment_start + random_in(rng, 0, 3));
  }
  s.tables = std::make_shared<testing::RandomTables>(rng, std::ssize(s.q),
                                                     std::max<std::int64_t>(std::ssize(s.kv), 1));
  return s;
}

}  // namespace

std::vector<std::int64_t> rank_keys(const MaskSpec& mask, const std::vector<TokenCoord>& kv, bool by_pos) {
  std::vector<std::int64_t> rows(kv.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (by_pos) std::ranges::stable_sort(rows, {}, [&](std::int64_t row) { return kv[at(row)].pos; });
  std::vector<std::int64_t> ordinals(kv.size(), 0);
  std::map<std::int32_t, std::int64_t> next;
  const bool by_segment = implies_segment(mask);
  for (const std::int64_t row : rows) {
    if (kv[at(row)].valid) ordinals[at(row)] = next[by_segment ? kv[at(row)].segment : 0]++;
  }
  return ordinals;
}

AttentionCase read_case(FuzzInput& in) {
  AttentionCase out;
  out.seed = in.bits(1);
  out.spec.mask = read_mask(in);
  out.spec.heads.num_kv_heads = static_cast<int>(in.between(1, 3));
  out.spec.heads.num_q_heads = out.spec.heads.num_kv_heads * static_cast<int>(in.between(1, 4));
  out.spec.heads.qk_head_dim = static_cast<int>(in.between(1, 40));
  out.spec.heads.v_head_dim = static_cast<int>(in.between(1, 40));
  read_rope(in, out.spec);
  read_score(in, out.spec);
  constexpr std::array kFactors{1.0F, 1.0F, 1.0F, 3.0F, 0.1F, 1e-20F};
  out.factor = in.pick(kFactors);
  out.has_bias = in.one_in(4);
  const std::int64_t order = in.below(4);
  out.states_ordinals = order != 0;
  const bool has_rope_pos = in.one_in(3);
  for (std::int64_t i = 1 + in.below(3); i > 0; --i) {
    CaseSequence s = read_sequence(in);
    if (!has_rope_pos) s.q_rope_pos = s.kv_rope_pos = {};
    if (has_rope_pos && s.q_rope_pos.empty()) {
      for (const TokenCoord& c : s.q) s.q_rope_pos.push_back(c.pos);
      for (const TokenCoord& c : s.kv) s.kv_rope_pos.push_back(c.pos);
    }
    s.ordinals = rank_keys(out.spec.mask, s.kv, order < 2);
    if (order == 3) {  // earlier keys were evicted
      const std::int64_t first = in.below(300);
      for (std::int64_t& ordinal : s.ordinals) ordinal = first + 2 * ordinal + (ordinal > 7 ? 100 : 0);
    }
    out.sequences.push_back(std::move(s));
  }
  return out;
}

bool AttentionCase::has_invalid_keys() const {
  return std::ranges::any_of(sequences, [](const CaseSequence& s) {
    return std::ranges::any_of(s.kv, [](const TokenCoord& c) { return !c.valid; });
  });
}

test::Batch AttentionCase::batch(int copies) const {
  test::Batch out;
  out.spec = spec;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  std::uint64_t next_seed = seed << 20;
  for (int copy = 0; copy < copies; ++copy) {
    for (const CaseSequence& s : sequences) {
      test::add_sequence(out, s.q, s.kv, next_seed++);
      append(out.q_rope_pos, s.q_rope_pos);
      append(out.kv_rope_pos, s.kv_rope_pos);
      if (states_ordinals) append(out.ordinals, s.ordinals);
      if (uses_tables()) out.tables.push_back(s.tables->view());
    }
  }
  for (auto* values : {&out.q, &out.k}) {
    for (float& x : *values) x *= factor;
  }
  if (has_bias) {
    Rng rng(seed);
    const std::int64_t count = spec.heads.num_q_heads * out.num_q() * out.max_kv();
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_invisible = rng.next_below(6) == 0;
      const auto x = static_cast<float>(rng.next_normal());
      out.bias.push_back(is_invisible ? -std::numeric_limits<float>::infinity() : x);
    }
  }
  return out;
}

test::Batch select(const AttentionCase& from, const test::Batch& batch, std::size_t s,
                   const std::vector<std::int64_t>& q_rows, const std::vector<std::int64_t>& kv_rows,
                   std::vector<std::uint8_t>& dense, std::vector<std::int32_t>& nodes) {
  const HeadSpec& heads = from.spec.heads;
  const CaseSequence& whole = from.sequences[s];
  const std::int64_t q0 = batch.q_offsets[s];
  const std::int64_t k0 = batch.kv_offsets[s];
  test::Batch part;
  part.spec = from.spec;
  part.q_offsets.push_back(std::ssize(q_rows));
  part.kv_offsets.push_back(std::ssize(kv_rows));
  const auto take = [](const auto& all, auto& to, std::int64_t row, std::int64_t width) {
    if (!all.empty()) to.insert(to.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  };
  for (const std::int64_t row : q_rows) {
    take(batch.q_coords, part.q_coords, q0 + row, 1);
    take(batch.q_rope_pos, part.q_rope_pos, q0 + row, 1);
    take(batch.q, part.q, q0 + row, heads.num_q_heads * heads.qk_head_dim);
  }
  for (const std::int64_t row : kv_rows) {
    take(batch.kv_coords, part.kv_coords, k0 + row, 1);
    take(batch.kv_rope_pos, part.kv_rope_pos, k0 + row, 1);
    take(batch.k, part.k, k0 + row, heads.num_kv_heads * heads.qk_head_dim);
    take(batch.v, part.v, k0 + row, heads.num_kv_heads * heads.v_head_dim);
    part.ordinals.push_back(whole.ordinals[at(row)]);
  }
  for (int h = 0; h < heads.num_q_heads && !batch.bias.empty(); ++h) {
    for (const std::int64_t q : q_rows) {
      for (const std::int64_t k : kv_rows) {
        part.bias.push_back(batch.bias[at((h * batch.num_q() + q0 + q) * batch.max_kv() + k)]);
      }
    }
  }
  if (from.uses_tables()) {
    const MaskTables tables = whole.tables->view();
    dense.clear();
    nodes.clear();
    for (const std::int64_t q : q_rows) {
      for (const std::int64_t k : kv_rows) dense.push_back(tables.dense(q, k));
    }
    dense.push_back(0);  // so that a table of no columns has data
    for (const std::int64_t q : q_rows) nodes.push_back(tables.q_node[at(q)]);
    for (const std::int64_t k : kv_rows) nodes.push_back(tables.kv_node[at(k)]);
    MaskTables view;
    view.dense = dense_view<const std::uint8_t, 2>(dense.data(), {std::ssize(q_rows), std::ssize(kv_rows)});
    view.q_node = std::span(nodes).first(q_rows.size());
    view.kv_node = std::span(nodes).subspan(q_rows.size());
    view.parent = tables.parent;
    part.tables = {view};
  }
  return part;
}

}  // namespace sightline
