// A small scene in which every fault of the table shows: calls in chunks with padding and two documents, a
// trace with a truncate and a shift, gradients, and loss targets, all by the oracle.
#pragma once

#include "reference/random_call.h"
#include "sightline/faults/fault_table.h"
#include "sightline/reference/rotate.h"
#include "sightline/reference/trace_player.h"

namespace sightline {

class FaultScene {
 public:
  static constexpr std::int64_t kNumTokens = 10;

  FaultScene() : call_(scene_spec(), 0, kNumTokens, 1) {
    std::vector<TokenCoord>& coords = call_.q_coords;
    coords[0].valid = false;
    for (std::int64_t i = 0; i < kNumTokens; ++i) {
      TokenCoord& coord = coords[static_cast<std::size_t>(i)];
      coord.pos = i - 1;
      coord.segment = i < 6 ? 0 : 1;
      coord.segment_start = i < 6 ? 0 : 5;
      coord.span = i == 3 || i == 4 ? 1 : 0;
      rope_pos_.push_back(coord.pos - coord.segment_start);
    }
    call_.kv_coords = coords;
    call_.add_bias(2);
    call_.add_d_lse(3);
  }

  /// What a fault needs beyond the usual scene.
  void prepare_for(const FaultKind& kind) {
    const std::string_view slug = kind.slug;
    RopeScaling& scaling = call_.spec.rope.scaling;
    const auto set_mask = [&](const char* mask) { call_.spec.mask = parse_mask(mask).value(); };
    if (slug == "mask.chunked_local" || kind.variant == "rule_ignored") set_mask("causal & chunk(3)");
    if (slug == "mask.tree_speculative") {
      set_mask(kind.variant == "unmasked" ? "tree" : "causal & tree");
      call_.spec.score.alibi_slopes.clear();
      grow_drafts();
    }
    if (kind.variant == "zero_keys") {
      std::fill_n(call_.k.begin() + 4 * 2 * call_.spec.heads.qk_head_dim, call_.spec.heads.qk_head_dim, 0.0);
    }
    if (kind.variant == "plain") call_.spec.score.alibi_slopes[1] *= 2;  // four heads have the plain row
    if (kind.variant == "formula") {
      scaling.kind = RopeScalingKind::kYarn;
      scaling.original_context = 8;
    }
    if (kind.variant == "both_sides") set_mask("window(3) & ahead(1)");
    if (kind.variant == "forced_causal") set_mask("window(3)");
    if (kind.variant == "applied" || kind.variant == "later") set_mask("causal");
    if (kind.variant == "later" || kind.variant == "over_all") call_.num_cached = 3;
    if (kind.variant == "mean") call_.spec.score.sink_logits.clear();
    if (kind.variant == "joined") {
      for (std::vector<TokenCoord>* coords : {&call_.q_coords, &call_.kv_coords}) (*coords)[1].span = 2;
    }
    if (kind.variant == "divisor") {
      call_.spec.heads.num_kv_heads = 4;
      call_.k = reference::RandomCall(call_.spec, 0, kNumTokens, 4).k;
      call_.v = reference::RandomCall(call_.spec, 0, kNumTokens, 4).v;
    }
    if (kind.variant == "rotated_halves" || kind.variant == "rotated_neighbours") call_.spec.rope = {};
    if (kind.variant.ends_with("rows_read") || kind.variant.ends_with("rows_written")) {
      call_.spec.rope.rotary_dim = call_.spec.heads.qk_head_dim;
    }
    if (kind.variant == "by_row") call_.spec.mask = parse_mask("causal & segment").value();
    if (kind.variant == "partner") call_.spec.rope.pairing = RopePairing::kHalfSplit;
    if (kind.variant == "positions") {
      for (std::int64_t& p : rope_pos_) p += 1000;  // half types hold the small ones
    }
    if (kind.variant == "padding") call_.q_coords[9].valid = call_.kv_coords[9].valid = false;
    if (kind.variant == "keys_for_values") {
      call_.spec.heads.v_head_dim = call_.spec.heads.qk_head_dim;
      call_.v = reference::RandomCall(call_.spec, 0, kNumTokens, 4).v;
      call_.d_out = reference::RandomCall(call_.spec, 0, kNumTokens, 4).d_out;
    }
    if (slug == "rope.cached_keys_rescaled") {
      scaling.kind = RopeScalingKind::kDynamicNtk;
      scaling.original_context = 2;
    }
    // Under a document mask alone, restarting positions is invisible to pure rope.
    if (slug == "pack.position_reset") call_.spec.mask = parse_mask("causal").value();
  }

  /// Everything that the oracle says about the scene, with the fault planted where it belongs.
  Result<std::vector<double>> observe(const Fault* fault) const {
    std::vector<double> all;
    RandomCall whole = call_;
    reference::Deviation deviation;
    LossSpec loss;
    if (fault != nullptr) {
      SIGHTLINE_CHECK(plant(*fault, whole.spec, deviation));
      SIGHTLINE_CHECK(plant(*fault, whole.spec));
      SIGHTLINE_CHECK(plant(*fault, loss));
    }
    whole.q_rope_pos = whole.kv_rope_pos = rope_pos_;
    if (!parents_.empty()) {
      CallCoords call = call_coords(0, whole.q_coords, rope_pos_);
      call.num_drafts = static_cast<std::int64_t>(parents_.size());
      if (fault != nullptr) SIGHTLINE_CHECK(plant(*fault, call));
      whole.q_coords = call.q_coords;
      whole.kv_coords = call.kv_coords;
      whole.q_rope_pos = call.q_rope_pos;
      whole.kv_rope_pos = call.kv_rope_pos;
      whole.tables.q_node = whole.tables.kv_node = nodes_;
      whole.tables.parent = parents_;
    }
    add(all, whole.forward({}, deviation).out);
    add(all, whole.forward({}, deviation).lse);
    const reference::AttentionGradients grads = whole.backward(deviation);
    for (const auto* d : {&grads.d_q, &grads.d_k, &grads.d_v, &grads.d_sink_logits}) add(all, *d);
    if (grads.d_sink_logits.empty()) all.insert(all.end(), 4, 0.0);
    for (const std::int64_t row : loss_targets(loss, whole.q_coords, {}))
      all.push_back(static_cast<double>(row));
    if (!parents_.empty()) return all;  // a trace has no tables
    // Features of a token are split for all of its sequence, not for the part that a step brings.
    if (deviation.fused_layout != reference::FusedLayout::kRight) return all;
    SIGHTLINE_CHECK(observe_chunks(fault, whole, deviation, all));
    SIGHTLINE_CHECK(observe_trace(fault, whole, deviation, all));
    return all;
  }

 private:
  using RandomCall = reference::RandomCall;

  static AttentionSpec scene_spec() {
    AttentionSpec spec = reference::small_spec("(causal | span) & window(3) & segment");
    spec.rope = reference::small_rope();
    spec.rope.scaling.kind = RopeScalingKind::kLinear;
    spec.rope.scaling.factor = 2;
    spec.rope.cos_sin_magnitude = 1.2;
    spec.score.logit_softcap = 2;
    spec.score.alibi_slopes = alibi_slopes(4);
    spec.score.sink_logits = {0.5, -1, 2, 0};
    spec.score.dropout = {.rate = 0.25, .seed = 3, .layer = 0};
    return spec;
  }

  /// The last four tokens are drafts: a root, two children of it, and a child of the first of these.
  void grow_drafts() {
    parents_ = {-1, 0, 0, 1};
    nodes_ = {-1, -1, -1, -1, -1, -1, 0, 1, 2, 3};
    std::vector<TokenCoord>& coords = call_.q_coords;
    for (std::size_t i = 6; i < 10; ++i) {
      const std::int32_t parent = parents_[i - 6];
      const std::size_t before = parent < 0 ? 5 : 6 + static_cast<std::size_t>(parent);
      coords[i] = coords[before];
      ++coords[i].pos;
      rope_pos_[i] = rope_pos_[before] + 1;
    }
    call_.kv_coords = coords;
  }

  static void add(std::vector<double>& all, const std::vector<double>& x) {
    all.insert(all.end(), x.begin(), x.end());
  }

  static StridedView<const double, 3> rows(StridedView<const double, 3> view, std::int64_t begin,
                                           std::int64_t end) {
    view.data += begin * view.strides[0];
    view.shape[0] = end - begin;
    return view;
  }

  reference::TraceStepData step_data(const RandomCall& whole, std::int64_t begin, std::int64_t end) const {
    const reference::AttentionInputs in = whole.inputs();
    return {.q = rows(in.q, begin, end), .k = rows(in.k, begin, end), .v = rows(in.v, begin, end)};
  }

  /// Chunks of 4, 3, 1, 1, 1 through the cache's meaning.
  Result<void> observe_chunks(const Fault* fault, const RandomCall& whole,
                              const reference::Deviation& deviation, std::vector<double>& all) const {
    SIGHTLINE_TRY(auto player, reference::TracePlayer::create(whole.spec, kNumTokens, deviation));
    std::int64_t begin = 0;
    for (const std::int64_t length : {4, 3, 1, 1, 1}) {
      const std::int64_t end = begin + length;
      const std::span<const TokenCoord> coords(whole.q_coords);
      CallCoords call = call_coords(
          begin, coords.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length)),
          std::span(rope_pos_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length)));
      if (fault != nullptr) SIGHTLINE_CHECK(plant(*fault, call));
      const reference::TraceStepData data = step_data(whole, begin, end);
      SIGHTLINE_CHECK(player.play(TraceAppend{0, call.kv_coords, call.kv_rope_pos}, data));
      SIGHTLINE_TRY(const auto outputs, player.play(TraceQuery{0, call.q_coords, call.q_rope_pos}, data));
      add(all, outputs.out);
      begin = end;
    }
    return {};
  }

  /// Drafts that are rejected, and a context that moves.
  Result<void> observe_trace(const Fault* fault, const RandomCall& whole,
                             const reference::Deviation& deviation, std::vector<double>& all) const {
    const std::vector<TokenCoord> coords = coords_range(0, kNumTokens);
    const auto part = [&](std::size_t begin, std::size_t end) {
      return std::vector<TokenCoord>(coords.begin() + static_cast<std::ptrdiff_t>(begin),
                                     coords.begin() + static_cast<std::ptrdiff_t>(end));
    };
    Trace trace;
    std::vector<reference::TraceStepData> data;
    trace.steps = {TraceAppend{0, part(0, 4), {}}, TraceAppend{0, part(6, 8), {}}, TraceTruncate{0, 4},
                   TraceAppend{0, part(4, 6), {}}, TraceQuery{0, part(4, 6), {}},  TraceEvict{0, 0, 2},
                   TraceShift{0, 2, 6, -2},        TraceQuery{0, part(4, 5), {}}};
    data = {step_data(whole, 0, 4),
            step_data(whole, 6, 8),
            {},
            step_data(whole, 4, 6),
            step_data(whole, 4, 6),
            {},
            {},
            step_data(whole, 6, 7)};
    if (fault != nullptr) SIGHTLINE_CHECK(plant(*fault, trace));
    // ALiBi and windows would move with the queries; here only the rotation is looked at.
    AttentionSpec spec = whole.spec;
    spec.mask = parse_mask("all").value();
    SIGHTLINE_TRY(const auto played, reference::play_trace(spec, trace, data, kNumTokens, deviation));
    for (const reference::AttentionOutputs& outputs : played) add(all, outputs.out);
    return {};
  }

  RandomCall call_;
  std::vector<std::int64_t> rope_pos_;
  std::vector<std::int32_t> nodes_, parents_;  // of a draft tree, where there is one
};

}  // namespace sightline
