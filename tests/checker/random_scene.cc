#include "checker/random_scene.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "checker/search.h"
#include "checker/simulate.h"

namespace sightline::checker {

RandomScene::RandomScene(std::uint64_t seed)
    : rng_(seed),
      spec_(random_spec()),
      type_(static_cast<ElementType>(between(1, 3))),
      seen_(static_cast<Seen>(between(0, 2))) {}

int RandomScene::between(int low, int high) {
  return low + static_cast<int>(rng_.next_u64() % static_cast<std::uint64_t>(high - low + 1));
}

AttentionSpec RandomScene::random_spec() {
  static constexpr const char* kMasks[] = {
      "causal",
      "causal & window(5)",
      "causal & segment",
      "causal & (window(4) | first(2))",
      "(causal | span) & window(6) & ahead(5)",
      "causal & chunk(5)",
      "causal | span",
      "causal & window(7) & segment",
      "causal & dilated(2)",
      "causal & chunk(4)",
      "window(6) & ahead(3)",
      "segment",
  };
  static constexpr double kThetas[] = {1e4, 5e5, 1e6, 100};
  AttentionSpec spec;
  const int num_kv_heads = between(1, 3);
  const int dim = 2 * between(2, 8);
  spec.heads = {num_kv_heads * between(1, 3), num_kv_heads, dim, between(0, 2) == 0 ? dim : between(3, 12)};
  spec.mask = parse_mask(kMasks[between(0, static_cast<int>(std::size(kMasks)) - 1)]).value();
  if (between(0, 3) > 0) {
    spec.rope.pairing = between(0, 1) == 0 ? RopePairing::kInterleaved : RopePairing::kHalfSplit;
    spec.rope.rotary_dim = between(0, 2) > 0 ? dim : std::max(2, dim / 4 * 2);
    spec.rope.theta = kThetas[between(0, 3)];
    if (between(0, 1) == 0) {
      static constexpr RopeScalingKind kKinds[] = {RopeScalingKind::kLinear, RopeScalingKind::kYarn,
                                                   RopeScalingKind::kLlama3, RopeScalingKind::kDynamicNtk};
      spec.rope.scaling.kind = kKinds[between(0, 3)];
      spec.rope.scaling.factor = 4;
      spec.rope.scaling.original_context = 8;
    }
    if (between(0, 3) == 0) spec.rope.cos_sin_magnitude = 1.2079;
  } else if (between(0, 1) == 0) {
    spec.score.alibi_slopes = alibi_slopes(spec.heads.num_q_heads);
  }
  if (between(0, 3) == 0) spec.score.logit_softcap = 3;
  if (between(0, 3) == 0) {
    for (int h = 0; h < spec.heads.num_q_heads; ++h) spec.score.sink_logits.push_back(rng_.next_normal());
  }
  if (between(0, 4) == 0) spec.score.softmax_scale = 0.5;
  if (between(0, 7) == 0) spec.score.dropout = {.rate = 0.25, .seed = 5, .layer = 1};
  return spec;
}

Observation RandomScene::observation() {
  Observation o;
  o.spec = spec_;
  o.type = type_;
  const HeadSpec& heads = spec_.heads;
  const bool has_gradients = seen_ == Seen::kGradientsToo;
  const int kv_len = between(18, 40);
  o.rope_length = kv_len;
  const int q_len = has_gradients ? kv_len : between(6, kv_len);
  const auto fill = [&](std::vector<double>& x, int count) {
    x.resize(static_cast<std::size_t>(count));
    for (double& y : x) y = round_to(type_, 1.5 * rng_.next_normal());
  };
  fill(o.q, q_len * heads.num_q_heads * heads.qk_head_dim);
  fill(o.k, kv_len * heads.num_kv_heads * heads.qk_head_dim);
  fill(o.v, kv_len * heads.num_kv_heads * heads.v_head_dim);
  if (has_gradients) fill(o.d_out, q_len * heads.num_q_heads * heads.v_head_dim);
  if (between(0, 3) == 0) fill(o.bias, heads.num_q_heads * q_len * kv_len);
  // A bias holds zeros, and so may a key: what is counted or cast by value shows there alone.
  for (std::size_t i = 0; i < o.bias.size(); i += 3) o.bias[i] = 0;
  if (kv_len % 3 == 0) {
    const int row_size = heads.num_kv_heads * heads.qk_head_dim;
    std::fill_n(o.k.begin() + kv_len / 2 * row_size, row_size, 0.0);
  }

  // Padding in front and behind, positions that are small or large, two documents with rotary positions of
  // their own, a bidirectional span.
  const int num_pads = between(0, 2) > 0 ? 0 : between(1, 3);
  const int num_tail_pads = between(0, 2) > 0 ? 0 : between(1, 3);
  const int first_rope_pos = between(0, 2) > 0 ? 0 : between(500, 5000);
  const int second_document = between(0, 1) == 0 ? between(6, 12) : kv_len;
  o.kv_coords = coords_range(-num_pads, kv_len - num_pads);
  for (int i = 0; i < kv_len; ++i) {
    TokenCoord& coord = o.kv_coords[static_cast<std::size_t>(i)];
    coord.valid = i >= num_pads && i < kv_len - num_tail_pads;
    if (i >= second_document) {
      coord.segment = 1;
      coord.segment_start = second_document - num_pads;
    }
    if (i >= num_pads + 3 && i < num_pads + 6) coord.span = 1;
    if (i >= num_pads + 8 && i < num_pads + 11 && second_document == kv_len) coord.span = 2;
    o.kv_rope_pos.push_back(first_rope_pos + coord.pos - coord.segment_start);
  }
  o.q_coords.assign(o.kv_coords.end() - q_len, o.kv_coords.end());
  o.q_rope_pos.assign(o.kv_rope_pos.end() - q_len, o.kv_rope_pos.end());
  if (!has_gradients && between(0, 2) > 0) {
    for (int begin = 0; begin < q_len; begin += between(1, 6)) o.call_begins.push_back(begin);
  }
  if (uses(spec_.mask, MaskOp::kTree)) grow_drafts(o);
  return o;
}

// The last tokens become a draft tree, in one call.
void RandomScene::grow_drafts(Observation& o) {
  const auto q_len = static_cast<int>(o.q_len());
  const int num_drafts = between(4, std::min(9, q_len));
  const std::size_t first = o.kv_coords.size() - static_cast<std::size_t>(num_drafts);
  for (int node = 0; node < num_drafts; ++node) {
    o.draft_parents.push_back(between(-1, node - 1));
    const std::size_t i = first + static_cast<std::size_t>(node);
    const std::int32_t parent = o.draft_parents.back();
    const std::size_t before = parent < 0 ? first - 1 : first + static_cast<std::size_t>(parent);
    o.kv_coords[i] = o.kv_coords[before];
    o.kv_coords[i].valid = true;
    ++o.kv_coords[i].pos;
    o.kv_rope_pos[i] = o.kv_rope_pos[before] + 1;
  }
  std::copy(o.kv_coords.end() - q_len, o.kv_coords.end(), o.q_coords.begin());
  std::copy(o.kv_rope_pos.end() - q_len, o.kv_rope_pos.end(), o.q_rope_pos.begin());
  std::erase_if(o.call_begins, [&](std::int64_t begin) { return begin > q_len - num_drafts; });
}

Fault RandomScene::fault(const FaultKind& kind) {
  if (kind.slug == "mask.tree_speculative") {
    static constexpr const char* kMasks[] = {"causal & tree", "tree", "causal & tree & window(12)"};
    const bool has_causal = kind.variant != "unmasked" && between(0, 1) == 0;
    spec_.mask = parse_mask(kMasks[has_causal ? 2 * between(0, 1) : 1]).value();
  }
  Fault fault{&kind, {}};
  for (const FaultParameter& parameter : kind.parameters) {
    double value = parameter.value;
    if (parameter.name == "offset") value = between(0, 1) == 0 ? 0 : between(1, 9);
    if (parameter.name == "keys") value = between(0, 1) == 0 ? 1 : -1;
    if (parameter.name == "theta") value = between(0, 1) == 0 ? 1e4 : 2.5e4;
    if (parameter.name == "rows") value = between(4, 12);
    if (parameter.name == "factor") value = 0.3 + 0.1 * between(0, 20);
    if (parameter.name == "fill") value = -between(1, 12);
    if (parameter.name == "rule") value = between(1, 3);
    if (parameter.name == "origin") value = between(1, 3);
    if (parameter.name == "slots") value = between(4, 12);
    if (parameter.name == "newest") value = between(1, 2);
    if (parameter.name == "slots_read") value = between(0, 1) == 0 ? between(1, 40) : between(100, 4000);
    if (parameter.name == "times") value = between(0, 1) == 0 ? 0.01 * between(1, 90) : 10.0 * between(1, 40);
    if (parameter.name == "bits") value = between(0, 1) == 0 ? 8 : 11;
    if (parameter.name == "head_dim") value = 2 * between(2, 12);
    if (parameter.name == "window") value = between(2, 9);
    if (parameter.name == "taken") value = between(0, 1) == 0 ? 8 : 3;
    if (parameter.name == "window_keys") value = between(-1, 1);
    if (parameter.name == "later") value = between(1, 3);
    if (parameter.name == "moved") value = between(1, 6);
    if (parameter.name == "kept") value = between(1, 3);
    if (parameter.name == "empty") value = between(1, 3);
    if (parameter.name == "block") value = between(2, 9);
    if (parameter.name == "back") value = between(0, 2);
    if (parameter.name == "width") value = 2 * between(1, 6);
    if (parameter.name == "unwritten") value = between(1, 5);
    fault.values.push_back(value);
  }
  return fault;
}

bool RandomScene::observe(Observation& o, std::span<const Fault> faults) const {
  // One number says that an output is wanted.
  o.out.assign(1, 0.0);
  if (seen_ != Seen::kOut) o.lse.assign(1, 0.0);
  if (seen_ == Seen::kGradientsToo) o.d_q = o.d_k = o.d_v = {0.0};
  std::vector<std::int64_t> rows(o.q_coords.size());
  std::iota(rows.begin(), rows.end(), 0);
  const Simulator simulator(o, rows);
  Result<Prediction> prediction = simulator.predict(faults);
  const bool applies = prediction.has_value();
  if (!applies) prediction = simulator.predict({});
  const auto fill = [&](std::vector<double>& to, const PredictedArray& from) {
    if (to.empty()) return;
    to = from.values;
    for (double& x : to) x = round_to(type_, x);
  };
  fill(o.out, prediction->out);
  fill(o.lse, prediction->lse);
  fill(o.d_q, prediction->d_q);
  fill(o.d_k, prediction->d_k);
  fill(o.d_v, prediction->d_v);
  return applies;
}

bool is_hidden(std::span<const Observation> observations) {
  const Searcher searcher(observations);
  return std::ranges::all_of(searcher.declared(),
                             [](const Misfit& misfit) { return misfit.worst <= kExcluded; });
}

std::uint64_t confusion_setting(const char* name, std::uint64_t usual) {
  const char* text = std::getenv(name);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

}  // namespace sightline::checker
