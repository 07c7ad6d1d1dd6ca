#include "subjects/model/altered_settings.h"

#include <algorithm>

#include "sightline/spec/row_order.h"

namespace sightline::subjects {
namespace {

Result<void> needs_rotation(const AttentionSpec& spec) {
  if (spec.rope.pairing != RopePairing::kNone) return {};
  return fail(ErrorKind::kInvalidArgument, "the layer has no rotation");
}

// What the command line states replaces what the file says, its magnitude included.
Result<void> linear(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(spec));
  spec.rope.scaling = {};
  spec.rope.scaling.kind = RopeScalingKind::kLinear;
  spec.rope.scaling.factor = fault.value("factor");
  spec.rope.cos_sin_magnitude = 1;
  return {};
}

Result<void> yarn(const Fault& fault, AttentionSpec& spec) {
  SIGHTLINE_CHECK(needs_rotation(spec));
  spec.rope.scaling = {};
  spec.rope.scaling.kind = RopeScalingKind::kYarn;
  spec.rope.scaling.factor = fault.value("factor");
  spec.rope.scaling.original_context = static_cast<std::int64_t>(fault.value("original_context"));
  spec.rope.cos_sin_magnitude = yarn_magnitude(spec.rope.scaling.factor);
  return {};
}

// What the engine projects are halves, whatever the file's order of rows.
RowChange in_order(std::string_view suffix, std::vector<std::int64_t> from) {
  return [from = std::move(from), suffix](std::string_view tensor, StridedView<float, 2> view) {
    if (!tensor.ends_with(suffix)) return;
    std::vector<float> old(from.size());
    for (std::int64_t i = 0; i < view.shape[0]; ++i) {
      float* const row = view.data + i * view.strides[0];
      std::copy_n(row, from.size(), old.begin());
      for (std::size_t j = 0; j < from.size(); ++j) row[j] = old[static_cast<std::size_t>(from[j])];
    }
  };
}

bool all_layers_alike(const ModelSpec& model) {
  return std::ranges::all_of(model.layers, [&](const LayerSpec& layer) {
    return layer.attention.heads == model.layers.front().attention.heads;
  });
}

FaultKind row(std::string_view slug, std::string_view variant, std::string_view what,
              std::vector<FaultParameter> parameters, Result<void> (*on_spec)(const Fault&, AttentionSpec&)) {
  FaultKind kind;
  kind.slug = slug;
  kind.variant = variant;
  kind.group = FaultGroup::kPosition;
  kind.what = what;
  kind.parameters = std::move(parameters);
  kind.on_spec = on_spec;
  return kind;
}

}  // namespace

std::span<const FaultKind> altered_settings() {
  static const std::vector<FaultKind> kRows = {
      row("rope.scaling_missing", "linear", "all angles are divided by another number than the file says",
          {{"factor", 2, "the number"}}, linear),
      row("rope.scaling_missing", "yarn", "frequencies are scaled by YaRN where the file says otherwise",
          {{"factor", 4, "of the extension"}, {"original_context", 4096, "tokens trained on", true}}, yarn),
  };
  return kRows;
}

bool moves_rows(const FaultKind& kind) {
  return !kind.parameters.empty() && kind.parameters.front().name == "width";
}

RowChange moved_rows(const Fault& fault, const ModelSpec& model) {
  if (!moves_rows(*fault.kind) || !all_layers_alike(model)) return {};
  const AttentionSpec& attention = model.layers.front().attention;
  reference::Deviation moved;
  if (!plant(fault, attention, moved)) return {};
  const HeadSpec& heads = attention.heads;
  const auto order = [&](int num_heads, int width) {
    return misplaced_rows(moved.row_mistake, std::int64_t{num_heads} * heads.qk_head_dim, heads.qk_head_dim,
                          width, RopePairing::kHalfSplit);
  };
  RowChange queries, keys;
  if (moved.q_row_width > 0) queries = in_order(".q", order(heads.num_q_heads, moved.q_row_width));
  if (moved.k_row_width > 0) keys = in_order(".k", order(heads.num_kv_heads, moved.k_row_width));
  return one_after_other(std::move(queries), keys);
}

RowChange one_after_other(RowChange first, const RowChange& then) {
  if (!first) return then;
  if (!then) return first;
  return [first = std::move(first), then](std::string_view name, StridedView<float, 2> rows) {
    first(name, rows);
    then(name, rows);
  };
}

std::vector<double> usual_row_widths(const FaultKind& kind, const ModelSpec& model) {
  const HeadSpec& heads = model.layers.front().attention.heads;
  const int q_rows = heads.num_q_heads * heads.qk_head_dim, k_rows = heads.num_kv_heads * heads.qk_head_dim;
  // Rows of k counted by the query heads or by their ratio (ggml-org/llama.cpp#3364), those of q by the
  // others; the number of heads taken for half a width (huggingface/transformers#31766); one matrix; rows not
  // moved.
  std::vector<double> widths;
  const auto add = [&](int width) {
    reference::Deviation ignored;
    const Fault fault{&kind, {static_cast<double>(width)}};
    if (std::ranges::count(widths, fault.values.front()) > 0) return;
    if (plant(fault, model.layers.front().attention, ignored)) widths.push_back(fault.values.front());
  };
  for (const int heads_taken : {heads.num_q_heads, heads.num_kv_heads, heads.group_size(), 1}) {
    add(k_rows / heads_taken);
    add(q_rows / heads_taken);
    add(2 * heads_taken);
  }
  return widths;
}

}  // namespace sightline::subjects
