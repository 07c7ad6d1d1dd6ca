#include "model/weight_layout.h"

#include <algorithm>
#include <set>

namespace sightline {

namespace {

NormRef norm_ref(const NormSpec& norm, std::int64_t width, const std::string& name) {
  NormRef ref;
  ref.weight = {width, 0, {{.tensor = name + ".weight", .num_rows = width}}};
  if (norm.kind == NormKind::kLayer && norm.bias) {
    ref.bias = {width, 0, {{.tensor = name + ".bias", .num_rows = width}}};
  }
  return ref;
}

void add_matrix_part(WeightRef& matrix, WeightRef* bias, WeightPart part) {
  const std::string name = part.tensor;
  matrix.rows += part.num_rows;
  part.tensor = name + ".weight";
  matrix.parts.push_back(part);
  if (bias == nullptr) return;
  bias->rows += part.num_rows;
  part.tensor = name + ".bias";
  part.transposed = false;
  bias->parts.push_back(part);
}

LayerRefs layer_refs(const ModelSpec& spec, const LayerSpec& layer, const TensorNames& names,
                     const std::string& prefix) {
  LayerRefs refs;
  const HeadSpec& heads = layer.attention.heads;
  const RopeSpec& rope = layer.attention.rope;
  const std::int64_t width = spec.model_dim;
  const auto q_rows = std::int64_t{heads.num_q_heads} * heads.qk_head_dim;
  const auto k_rows = std::int64_t{heads.num_kv_heads} * heads.qk_head_dim;
  const auto v_rows = std::int64_t{heads.num_kv_heads} * heads.v_head_dim;
  const bool before = spec.norm_placement != NormPlacement::kAfter;
  const bool after = spec.norm_placement != NormPlacement::kBefore;

  if (before) refs.attention_norm = norm_ref(spec.norm, width, prefix + names.attention_norm);
  if (after) refs.attention_post_norm = norm_ref(spec.norm, width, prefix + names.attention_post_norm);
  if (spec.residual == ResidualKind::kSequential || after) {
    if (before && spec.residual == ResidualKind::kSequential) {
      refs.ffn_norm = norm_ref(spec.norm, width, prefix + names.ffn_norm);
    }
    if (after) refs.ffn_post_norm = norm_ref(spec.norm, width, prefix + names.ffn_post_norm);
  }

  WeightPart part{.transposed = names.transposed,
                  .order = rope.pairing == RopePairing::kNone ? RowOrder::kHalves : names.qk_order,
                  .head_dim = heads.qk_head_dim,
                  .rotary_dim = rope.rotary_dim};
  refs.qkv.cols = width;
  WeightRef* const qkv_bias = layer.qkv_bias ? &refs.qkv_bias : nullptr;
  const bool fused = !names.fused_qkv.empty();
  std::int64_t first_row = 0;
  const auto add_qkv = [&](const std::string& name, std::int64_t num_rows, RowOrder order) {
    WeightPart p = part;
    p.tensor = prefix + (fused ? names.fused_qkv : name);
    p.num_rows = num_rows;
    p.first_row = fused ? first_row : 0;
    p.order = order;
    first_row += num_rows;
    add_matrix_part(refs.qkv, qkv_bias, p);
  };
  add_qkv(names.q, q_rows, part.order);
  add_qkv(names.k, k_rows, part.order);
  add_qkv(names.v, v_rows, RowOrder::kHalves);

  if (layer.qk_norm != QkNorm::kNone) {
    const bool full = layer.qk_norm == QkNorm::kFullWidth;
    WeightPart norm = part;
    norm.transposed = false;
    norm.num_rows = full ? q_rows : heads.qk_head_dim;
    norm.tensor = prefix + names.q_norm + ".weight";
    refs.q_norm = {norm.num_rows, 0, {norm}};
    norm.num_rows = full ? k_rows : heads.qk_head_dim;
    norm.tensor = prefix + names.k_norm + ".weight";
    refs.k_norm = {norm.num_rows, 0, {norm}};
  }

  const auto plain = [&](const std::string& name, std::int64_t num_rows) {
    return WeightPart{.tensor = prefix + name, .num_rows = num_rows, .transposed = names.transposed};
  };
  refs.output.cols = std::int64_t{heads.num_q_heads} * heads.v_head_dim;
  add_matrix_part(refs.output, layer.output_bias ? &refs.output_bias : nullptr, plain(names.output, width));
  refs.up.cols = width;
  WeightRef* const up_bias = layer.ffn.bias ? &refs.up_bias : nullptr;
  if (layer.ffn.gated) add_matrix_part(refs.up, up_bias, plain(names.gate, layer.ffn.ffn_dim));
  add_matrix_part(refs.up, up_bias, plain(names.up, layer.ffn.ffn_dim));
  refs.down.cols = layer.ffn.ffn_dim;
  add_matrix_part(refs.down, layer.ffn.bias ? &refs.down_bias : nullptr, plain(names.down, width));
  return refs;
}

std::vector<std::int64_t> tensor_shape(const WeightRef& ref, const WeightPart& part, std::int64_t num_rows) {
  if (ref.cols == 0) return {num_rows};
  if (part.transposed) return {ref.cols, num_rows};
  return {num_rows, ref.cols};
}

bool is_ignored(const WeightLayout& layout, const std::string& name) {
  for (const std::string& suffix : layout.ignored_suffixes) {
    if (name.ends_with(suffix)) return true;
  }
  for (const std::string& tensor : layout.ignored_tensors) {
    if (name == tensor) return true;
  }
  return false;
}

}  // namespace

TensorNames plain_tensor_names() {
  return {.embedding = "embedding.weight",
          .positions = "positions.weight",
          .final_norm = "final_norm",
          .head = "head",
          .layer_prefix = [](int layer) { return fmt::format("layer.{}.", layer); },
          .attention_norm = "attention_norm",
          .attention_post_norm = "post_attention_norm",
          .q_norm = "q_norm",
          .k_norm = "k_norm",
          .ffn_norm = "ffn_norm",
          .ffn_post_norm = "post_ffn_norm",
          .q = "q",
          .k = "k",
          .v = "v",
          .output = "o",
          .gate = "gate",
          .up = "up",
          .down = "down"};
}

WeightLayout make_layout(const ModelSpec& spec, const TensorNames& names) {
  WeightLayout layout;
  const std::int64_t width = spec.model_dim;
  layout.embedding = {spec.vocab_size, width, {{.tensor = names.embedding, .num_rows = spec.vocab_size}}};
  if (spec.num_learned_positions > 0) {
    layout.positions = {spec.num_learned_positions,
                        width,
                        {{.tensor = names.positions, .num_rows = spec.num_learned_positions}}};
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    layout.layers.push_back(layer_refs(spec, spec.layers[i], names, names.layer_prefix(static_cast<int>(i))));
  }
  layout.final_norm = norm_ref(spec.norm, width, names.final_norm);
  if (!spec.tied_head) {
    layout.head = {spec.vocab_size, width, {{.tensor = names.head + ".weight", .num_rows = spec.vocab_size}}};
  }
  if (spec.head_bias) {
    layout.head_bias = {spec.vocab_size, 0, {{.tensor = names.head + ".bias", .num_rows = spec.vocab_size}}};
  }
  return layout;
}

void for_each_weight(const WeightLayout& layout,
                     const std::function<void(std::string_view, const WeightRef&)>& visit) {
  const auto norm = [&](std::string_view what, const NormRef& ref) {
    visit(what, ref.weight);
    if (ref.bias.present()) visit(what, ref.bias);
  };
  const auto maybe = [&](std::string_view what, const WeightRef& ref) {
    if (ref.present()) visit(what, ref);
  };
  visit("embedding", layout.embedding);
  maybe("positions", layout.positions);
  for (const LayerRefs& layer : layout.layers) {
    if (layer.attention_norm.weight.present()) norm("attention norm", layer.attention_norm);
    if (layer.attention_post_norm.weight.present()) norm("norm after attention", layer.attention_post_norm);
    visit("q, k, v projections", layer.qkv);
    maybe("q, k, v biases", layer.qkv_bias);
    maybe("q norm", layer.q_norm);
    maybe("k norm", layer.k_norm);
    visit("output projection", layer.output);
    maybe("output bias", layer.output_bias);
    if (layer.ffn_norm.weight.present()) norm("feed-forward norm", layer.ffn_norm);
    if (layer.ffn_post_norm.weight.present()) norm("norm after feed-forward", layer.ffn_post_norm);
    visit("feed-forward up projection", layer.up);
    maybe("feed-forward up bias", layer.up_bias);
    visit("feed-forward down projection", layer.down);
    maybe("feed-forward down bias", layer.down_bias);
  }
  norm("final norm", layout.final_norm);
  maybe("head", layout.head);
  maybe("head bias", layout.head_bias);
}

Result<void> check_layout(const WeightLayout& layout, const TensorSource& source) {
  Result<void> result;
  std::set<std::string, std::less<>> used;
  for_each_weight(layout, [&](std::string_view what, const WeightRef& ref) {
    // Rows that all parts of one tensor take together: a fused tensor is exactly its parts.
    for (std::size_t i = 0; result && i < ref.parts.size(); ++i) {
      const WeightPart& part = ref.parts[i];
      std::int64_t num_rows = 0;
      for (const WeightPart& other : ref.parts) {
        if (other.tensor == part.tensor) num_rows = std::max(num_rows, other.first_row + other.num_rows);
      }
      const TensorInfo* info = source.find(part.tensor);
      if (info == nullptr) {
        result = fail(ErrorKind::kInvalidContent, "{}: tensor '{}' ({}) is missing", source.name(),
                      part.tensor, what);
        return;
      }
      used.insert(part.tensor);
      const std::vector<std::int64_t> expected = tensor_shape(ref, part, num_rows);
      if (info->shape != expected) {
        result =
            fail(ErrorKind::kInvalidContent,
                 "{}: tensor '{}' ({}): the hyperparameters ask for shape {}, the file has {}", source.name(),
                 part.tensor, what, shape_to_string(expected), shape_to_string(info->shape));
        return;
      }
      if (!is_readable(info->type)) {
        result = fail(ErrorKind::kInvalidContent, "{}: tensor '{}': type {} is not supported", source.name(),
                      part.tensor, to_string(info->type));
        return;
      }
    }
  });
  if (!result) return result;
  for (const TensorInfo& info : source.tensors()) {
    if (used.contains(info.name) || is_ignored(layout, info.name)) continue;
    return fail(ErrorKind::kInvalidContent,
                "{}: tensor '{}' {} has no place in this model; it may change what the model means",
                source.name(), info.name, shape_to_string(info.shape));
  }
  return {};
}

}  // namespace sightline
