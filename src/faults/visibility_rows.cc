// A. Who may read whom.
#include <algorithm>

#include "fault_rows.h"

namespace sightline::faults {
namespace {

using reference::Deviation;

// The causal frontier of row i of a call stands at the i-th key of the sequence, wherever the call begins:
// `pos` of a query is that key's. Rotation is untouched; ALiBi and dropout, which also read pos, follow the
// wrong frontier.
Result<void> top_left_alignment(const Fault&, CallCoords& call) {
  const auto first = std::ranges::find(call.q_coords, true, &TokenCoord::valid);
  if (first == call.q_coords.end()) return {};
  const std::int64_t pos_of_key_0 = first->pos - (first - call.q_coords.begin()) - call.num_cached;
  for (std::size_t i = 0; i < call.q_coords.size(); ++i) {
    call.q_coords[i].pos = pos_of_key_0 + static_cast<std::int64_t>(i);
  }
  return {};
}

Result<void> needs_alibi(const Fault& fault, const AttentionSpec& spec) {
  if (!spec.score.alibi_slopes.empty()) return {};
  return not_applicable(fault, "the layer has no ALiBi slopes");
}

// The mask alone is anchored there: distances of ALiBi are right. (A wrong constant a row cancels where
// weights add up to 1; beside a sink, or in the lse, it does not.)
Result<void> top_left_mask(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_alibi(fault, spec));
  deviation.query_frontier = reference::QueryFrontier::kFirstKeys;
  return {};
}

Result<void> causal_dropped(const Fault& fault, AttentionSpec& spec) {
  return replace_leaf(fault, spec, MaskOp::kCausal, MaskOp::kAll);
}

// Block-local attention: neither causal nor a window is applied within the blocks that are computed.
Result<void> rules_within_blocks(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(causal_dropped(fault, spec));
  for (MaskNode& node : spec.mask.nodes) {
    if (node.op == MaskOp::kWindow) node = {MaskOp::kAll, 0};
  }
  return {};
}

Result<void> own_blocks_alone(const Fault& fault, const AttentionSpec&, Deviation& deviation) {
  if (fault.value("block") < 1) return not_applicable(fault, "a block has at least one token");
  deviation.block_size = static_cast<std::int64_t>(fault.value("block"));
  deviation.num_blocks_back = static_cast<std::int64_t>(std::max(0.0, fault.value("back")));
  return {};
}

Result<void> diagonal_ahead(const Fault& fault, AttentionSpec& spec) {
  if (!uses(spec.mask, MaskOp::kCausal)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no causal", to_string(spec.mask)));
  }
  for (MaskNode& node : spec.mask.nodes) {
    if (node.op != MaskOp::kCausal) continue;
    node.op = MaskOp::kAhead;
    node.n = std::max<std::int64_t>(0, static_cast<std::int64_t>(fault.value("later")));
  }
  return {};
}

Result<void> window_off_by_one(const Fault& fault, AttentionSpec& spec) {
  if (!uses(spec.mask, MaskOp::kWindow)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no window", to_string(spec.mask)));
  }
  for (MaskNode& node : spec.mask.nodes) {
    if (node.op == MaskOp::kWindow) node.n += static_cast<std::int64_t>(fault.value("keys"));
  }
  return {};
}

Result<void> window_in_prompts(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (!uses(spec.mask, MaskOp::kWindow)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no window", to_string(spec.mask)));
  }
  deviation.window_extra_in_prompts = static_cast<std::int64_t>(fault.value("keys"));
  return {};
}

Result<void> window_scope(const Fault& fault, AttentionSpec& spec) {
  return replace_leaf(fault, spec, MaskOp::kWindow, MaskOp::kAll);
}

// A window to both sides is lost as one thing.
Result<void> both_sides_scope(const Fault& fault, AttentionSpec& spec) {
  if (!uses(spec.mask, MaskOp::kAhead)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no window ahead", to_string(spec.mask)));
  }
  SIGHTLINE_CHECK(replace_leaf(fault, spec, MaskOp::kWindow, MaskOp::kAll));
  return replace_leaf(fault, spec, MaskOp::kAhead, MaskOp::kAll);
}

// A layer that should see everything gets the window of another.
Result<void> window_applied(const Fault& fault, AttentionSpec& spec) {
  const auto n = static_cast<std::int64_t>(fault.value("window"));
  if (n < 1 || uses(spec.mask, MaskOp::kWindow)) {
    return not_applicable(fault, fmt::format("the mask '{}' has a window", to_string(spec.mask)));
  }
  spec.mask = spec.mask & mask_rule(MaskOp::kWindow, n);
  return {};
}

Result<void> inverted(const Fault&, AttentionSpec& spec) {
  spec.mask = !spec.mask;
  return {};
}

Result<void> span_causal(const Fault& fault, AttentionSpec& spec) {
  return replace_leaf(fault, spec, MaskOp::kSpan, MaskOp::kNone);
}

// All spans of a document are taken for one.
Result<void> spans_joined(const Fault&, CallCoords& call) {
  for (std::vector<TokenCoord>* coords : {&call.q_coords, &call.kv_coords}) {
    for (TokenCoord& coord : *coords) coord.span = coord.span != 0 ? 1 : 0;
  }
  return {};
}

// Padding joins as keys: pads in front with the coordinates of the first valid token, pads behind at the
// positions that follow the last one.
Result<void> padding_ignored(const Fault&, CallCoords& call) {
  const auto first = std::ranges::find(call.kv_coords, true, &TokenCoord::valid);
  if (first == call.kv_coords.end()) return {};
  auto near = static_cast<std::size_t>(first - call.kv_coords.begin());  // the nearest valid token so far
  TokenCoord coord = *first;
  std::int64_t rope_pos = call.kv_rope_pos[near];
  for (std::size_t i = 0; i < call.kv_coords.size(); ++i) {
    if (call.kv_coords[i].valid) {
      near = i;
      coord = call.kv_coords[i];
      rope_pos = call.kv_rope_pos[i];
      continue;
    }
    if (i > near) {
      ++coord.pos;
      ++rope_pos;
    }
    call.kv_coords[i] = coord;
    call.kv_rope_pos[i] = rope_pos;
  }
  return {};
}

// Padding is taken for text by queries and keys alike: a token stands where its row does, counted from the
// first valid one.
Result<void> padding_is_text(const Fault&, CallCoords& call) {
  const auto first = std::ranges::find(call.kv_coords, true, &TokenCoord::valid);
  if (first == call.kv_coords.end()) return {};
  const std::int64_t origin = first - call.kv_coords.begin();
  const TokenCoord right = *first;
  const std::int64_t rope_pos = call.kv_rope_pos[static_cast<std::size_t>(origin)];
  const auto join = [&](std::vector<TokenCoord>& coords, std::vector<std::int64_t>& rope) {
    for (std::size_t i = 0; i < coords.size(); ++i) {
      if (coords[i].valid) continue;
      const std::int64_t distance = static_cast<std::int64_t>(i) - origin;
      coords[i] = right;
      coords[i].pos += distance;
      rope[i] = rope_pos + distance;
    }
  };
  join(call.q_coords, call.q_rope_pos);
  join(call.kv_coords, call.kv_rope_pos);
  return {};
}

/// Rules that have a kind of their own when they are lost.
bool has_own_kind(MaskOp op) {
  return op == MaskOp::kCausal || op == MaskOp::kWindow || op == MaskOp::kSegment || op == MaskOp::kSpan ||
         op == MaskOp::kTree;
}

// Rule number `rule` of the mask, counted from 1, has no say: under `&` it is always true, under `|` never.
Result<void> rule_ignored(const Fault& fault, AttentionSpec& spec) {
  const auto wanted = static_cast<std::int64_t>(fault.value("rule"));
  std::vector<MaskNode>& nodes = spec.mask.nodes;
  std::int64_t rule = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!is_leaf(nodes[i].op) || ++rule != wanted) continue;
    if (has_own_kind(nodes[i].op)) break;
    // The operator that takes it: the first behind it for which nothing else is left to take.
    std::int64_t depth = 1;
    std::size_t parent = i + 1;
    for (; parent < nodes.size(); ++parent) {
      if (is_leaf(nodes[parent].op)) ++depth;
      if (nodes[parent].op == MaskOp::kNot && depth == 1) break;
      if ((nodes[parent].op == MaskOp::kAnd || nodes[parent].op == MaskOp::kOr) && --depth <= 1) {
        // Reached when the operator joins the stretch from this rule on, as its left or its right side.
        break;
      }
    }
    if (parent == nodes.size() || nodes[parent].op == MaskOp::kNot) break;
    nodes[i] = {nodes[parent].op == MaskOp::kAnd ? MaskOp::kAll : MaskOp::kNone, 0};
    return {};
  }
  return not_applicable(fault,
                        fmt::format("the mask '{}' has no such rule besides others", to_string(spec.mask)));
}

Result<void> rules_united(const Fault& fault, AttentionSpec& spec) {
  if (!uses(spec.mask, MaskOp::kAnd)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no &", to_string(spec.mask)));
  }
  const bool is_of_windows = std::ranges::all_of(spec.mask.nodes, [](const MaskNode& node) {
    return !is_leaf(node.op) || node.op == MaskOp::kWindow || node.op == MaskOp::kAhead;
  });
  if (is_of_windows)
    return not_applicable(fault, "joined by `or` its sides hide nothing: the window is lost");
  for (MaskNode& node : spec.mask.nodes) {
    if (node.op == MaskOp::kAnd) node.op = MaskOp::kOr;
  }
  return {};
}

Result<void> forced_causal(const Fault& fault, AttentionSpec& spec) {
  if (uses(spec.mask, MaskOp::kCausal) || uses(spec.mask, MaskOp::kSpan) || is_causal(spec.mask)) {
    return not_applicable(fault, fmt::format("the mask '{}' is causal", to_string(spec.mask)));
  }
  spec.mask = spec.mask & mask_rule(MaskOp::kCausal);
  return {};
}

Result<void> bias_ignored(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.bias_is_ignored = true;
  return {};
}

// Queries are masked by the rows of a call before this one, of the same length. As with a frontier at key
// 0, rotation is untouched.
Result<void> mask_of_previous_call(const Fault&, CallCoords& call) {
  const auto num_tokens = static_cast<std::int64_t>(call.q_coords.size());
  if (call.num_cached < num_tokens) return {};
  for (TokenCoord& coord : call.q_coords) coord.pos -= num_tokens;
  return {};
}

// As with a frontier at key 0: the mask alone, and distances of ALiBi are right.
Result<void> previous_call_mask(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_alibi(fault, spec));
  deviation.query_frontier = reference::QueryFrontier::kPreviousCall;
  return {};
}

Result<void> bias_of_other_head(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  if (spec.heads.num_kv_heads == 1 || spec.heads.group_size() == 1) {
    return not_applicable(fault, "heads fold alike either way");
  }
  deviation.bias_heads_transposed = true;
  return {};
}

Result<void> needs_chunks(const Fault& fault, const AttentionSpec& spec) {
  if (uses(spec.mask, MaskOp::kChunk)) return {};
  return not_applicable(fault, fmt::format("the mask '{}' has no chunks", to_string(spec.mask)));
}

Result<void> chunk_origin(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_chunks(fault, spec));
  deviation.chunk_origin = static_cast<std::int64_t>(fault.value("origin"));
  return {};
}

// The chunk of a query is counted from the first row of its call; that of a key is right.
Result<void> chunk_of_row(const Fault&, CallCoords& call) {
  const auto first = std::ranges::find(call.q_coords, true, &TokenCoord::valid);
  if (first == call.q_coords.end()) return {};
  const std::int64_t begin = first->pos;
  for (TokenCoord& coord : call.q_coords) coord.segment_start = begin;
  return {};
}

Result<void> chunks_over_documents(const Fault& fault, const AttentionSpec& spec, Deviation& deviation) {
  SIGHTLINE_CHECK(needs_chunks(fault, spec));
  deviation.chunk_ignores_documents = true;
  return {};
}

Result<void> chunk_slides(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_chunks(fault, spec));
  std::vector<MaskNode> nodes;
  for (const MaskNode& node : spec.mask.nodes) {
    if (node.op != MaskOp::kChunk) {
      nodes.push_back(node);
      continue;
    }
    nodes.insert(nodes.end(), {{MaskOp::kSegment, 0}, {MaskOp::kWindow, node.n}, {MaskOp::kAnd, 0}});
  }
  spec.mask.nodes = nodes;
  return {};
}

Result<void> pads_are_keys_later(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.pads_are_keys_later = true;
  return {};
}

Result<void> added_mask(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.mask_is_added = true;
  return {};
}

Result<void> bias_as_boolean(const Fault&, const AttentionSpec&, Deviation& deviation) {
  deviation.bias_hides = true;
  return {};
}

}  // namespace

std::vector<FaultKind> visibility_rows() {
  constexpr FaultGroup kGroup = FaultGroup::kVisibility;
  FaultKind blocks =
      row("mask.causal_dropped/blocks", kGroup,
          "queries see every key of their block and of blocks before it, later ones too", rules_within_blocks,
          {{"block", 4, "tokens of a block", true}, {"back", 1, "blocks before that are seen", true}});
  blocks.on_deviation = own_blocks_alone;
  blocks.is_oracle_only = true;
  return {
      row("mask.top_left_alignment", kGroup,
          "the causal frontier of a chunk is anchored at key 0 instead of its own position",
          top_left_alignment),
      needing(FaultNeed::kCachedKeys,
              row("mask.top_left_alignment/alibi_right", kGroup,
                  "the causal frontier of a chunk is anchored at key 0, and distances of ALiBi are right",
                  top_left_mask)),
      row("mask.causal_dropped", kGroup, "queries see later keys", causal_dropped),
      row("mask.causal_dropped/ahead", kGroup,
          "the causal diagonal lies too far on: queries see the next keys", diagonal_ahead,
          {{"later", 1, "later keys that a query sees", true}}),
      blocks,
      row("mask.composition/rule_ignored", kGroup, "one rule of a composed mask has no say", rule_ignored,
          {{"rule", 2, "which of the mask's rules, counted from 1", true}}),
      row("mask.composition/united", kGroup, "rules that should all hold are joined by `or`", rules_united),
      row("mask.composition/forced_causal", kGroup, "a mask that is not causal is run causal", forced_causal),
      needing(FaultNeed::kBias, row("mask.composition/bias_ignored", kGroup,
                                    "the additive mask beside the rules is not applied", bias_ignored)),
      row("mask.window_off_by_one", kGroup, "the window holds one key too many (or too few)",
          window_off_by_one, {{"keys", 1, "keys added to the window", true}}),
      row("mask.window_off_by_one/prompt", kGroup,
          "the window holds one key too many in calls of several tokens, and the right number in decode",
          window_in_prompts, {{"keys", 1, "keys added to the window", true}}),
      row("mask.window_scope", kGroup, "the window of a layer is read and never applied", window_scope),
      row("mask.window_scope/both_sides", kGroup, "a window to both sides is read and never applied",
          both_sides_scope),
      row("mask.window_scope/applied", kGroup, "a layer that should see everything gets a window",
          window_applied, {{"window", 4, "keys of that window", true}}),
      row("mask.polarity_or_kind/inverted", kGroup, "true is taken for hidden", inverted),
      row("mask.polarity_or_kind/added", kGroup, "the boolean mask is added to the scores as 0 and 1",
          added_mask),
      needing(FaultNeed::kBias,
              row("mask.polarity_or_kind/bias_as_boolean", kGroup,
                  "an additive mask is cast to a boolean one: numbers other than 0 hide", bias_as_boolean)),
      row("mask.padding_ignored", kGroup, "padding takes part as keys", padding_ignored),
      row("mask.padding_ignored/as_text", kGroup, "padding is taken for text, as queries and as keys",
          padding_is_text),
      needing(FaultNeed::kCachedKeys,
              row("mask.padding_ignored/later", kGroup,
                  "padding takes part as keys in every call after the first", pads_are_keys_later)),
      row("mask.prefix_bidirectional", kGroup, "tokens of a bidirectional span see each other only causally",
          span_causal),
      row("mask.prefix_bidirectional/joined", kGroup, "spans that are apart see each other", spans_joined),
      needing(FaultNeed::kCachedKeys,
              row("mask.stale_or_misbound/previous_call", kGroup,
                  "queries are masked as those of the call before", mask_of_previous_call)),
      needing(FaultNeed::kCachedKeys,
              row("mask.stale_or_misbound/previous_mask", kGroup,
                  "queries are masked as those of the call before, and distances of ALiBi are right",
                  previous_call_mask)),
      needing(FaultNeed::kBias,
              row("mask.stale_or_misbound/bias_heads", kGroup,
                  "heads are folded in another order than the additive mask's", bias_of_other_head)),
      row("mask.chunked_local/origin", kGroup, "chunks begin at another token", chunk_origin,
          {{"origin", 1, "tokens by which chunks begin too late", true}}),
      row("mask.chunked_local/documents", kGroup, "chunks are counted over documents, from position 0",
          chunks_over_documents),
      row("mask.chunked_local/row", kGroup, "the chunk of a query is counted from the first row of its call",
          chunk_of_row),
      row("mask.chunked_local/window", kGroup, "a sliding window stands in place of chunks", chunk_slides),
  };
}

}  // namespace sightline::faults
