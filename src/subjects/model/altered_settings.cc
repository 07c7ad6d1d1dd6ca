#include "subjects/model/altered_settings.h"

#include <algorithm>
#include <array>

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

// Row `row` of a matrix in halves, [heads, 2, dim / 2], once it is permuted to neighbours, [heads, dim / 2,
// 2].
std::int64_t row_among_neighbours(std::int64_t row, std::int64_t dim) {
  const std::int64_t head = row / dim, within = row % dim, half = dim / 2;
  return head * dim + 2 * (within % half) + within / half;
}

// A converter that takes rows for those of `heads` heads writes row r of halves to row_among_neighbours(r,
// rows / heads); a program that knows the right heads takes it back by the right dim.
RowChange permuted(std::string_view name, std::int64_t rows, std::int64_t right_dim, double heads) {
  const auto count = static_cast<std::int64_t>(heads);
  if (count < 1 || rows % count != 0 || (rows / count) % 2 != 0 || rows / count == right_dim) return {};
  std::vector<std::int64_t> from(static_cast<std::size_t>(rows)), written(from.size());
  for (std::int64_t r = 0; r < rows; ++r)
    written[static_cast<std::size_t>(row_among_neighbours(r, rows / count))] = r;
  for (std::int64_t r = 0; r < rows; ++r) {
    from[static_cast<std::size_t>(r)] = written[static_cast<std::size_t>(row_among_neighbours(r, right_dim))];
  }
  return [from = std::move(from), suffix = std::string(name)](std::string_view tensor,
                                                              StridedView<float, 2> view) {
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

RowChange key_rows(double heads, const ModelSpec& model) {
  if (!all_layers_alike(model)) return {};
  const HeadSpec& h = model.layers.front().attention.heads;
  return permuted(".k", std::int64_t{h.num_kv_heads} * h.qk_head_dim, h.qk_head_dim, heads);
}

RowChange query_rows(double heads, const ModelSpec& model) {
  if (!all_layers_alike(model)) return {};
  const HeadSpec& h = model.layers.front().attention.heads;
  return permuted(".q", std::int64_t{h.num_q_heads} * h.qk_head_dim, h.qk_head_dim, heads);
}

FaultKind row(std::string_view slug, std::string_view variant, std::string_view what,
              std::vector<FaultParameter> parameters,
              Result<void> (*on_spec)(const Fault&, AttentionSpec&) = nullptr) {
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

std::span<const AlteredSetting> altered_settings() {
  static const std::vector<AlteredSetting> kRows = {
      {row("rope.scaling_missing", "linear", "all angles are divided by another number than the file says",
           {{"factor", 2, "the number"}}, linear)},
      {row("rope.scaling_missing", "yarn", "frequencies are scaled by YaRN where the file says otherwise",
           {{"factor", 4, "of the extension"}, {"original_context", 4096, "tokens trained on", true}}, yarn)},
      {row("rope.pairing", "key_rows", "rows of k were permuted as those of another number of heads",
           {{"heads", 1, "the number taken", true}}),
       key_rows},
      {row("rope.pairing", "query_rows", "rows of q were permuted as those of another number of heads",
           {{"heads", 1, "the number taken", true}}),
       query_rows},
  };
  return kRows;
}

const AlteredSetting* altered_setting(const FaultKind* kind) {
  const auto found =
      std::ranges::find(altered_settings(), kind, [](const AlteredSetting& s) { return &s.kind; });
  return found == altered_settings().end() ? nullptr : &*found;
}

std::vector<double> head_counts_of_rows(const ModelSpec& model, bool of_keys) {
  const HeadSpec& h = model.layers.front().attention.heads;
  const int own = of_keys ? h.num_kv_heads : h.num_q_heads;
  // The other count, their ratio (ggml-org/llama.cpp#3364), one matrix, and rows that were left in halves.
  std::vector<double> counts;
  for (const int count : {of_keys ? h.num_q_heads : h.num_kv_heads, h.num_q_heads / h.num_kv_heads, 1,
                          own * h.qk_head_dim / 2}) {
    if (count != own && std::ranges::find(counts, count) == counts.end()) counts.push_back(count);
  }
  return counts;
}

}  // namespace sightline::subjects
