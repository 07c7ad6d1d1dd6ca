#include "subjects/model/layer_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sightline/generate/generate.h"
#include "sightline/reference/attention.h"

namespace sightline::subjects {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Place {
  std::string_view tensor;
  int step;
};
constexpr std::array kOrder{Place{"q", 0},       Place{"k", 0},         Place{"v", 0},     Place{"scores", 1},
                            Place{"weights", 2}, Place{"attention", 3}, Place{"output", 4}};
constexpr double kHidden = 1e9;  // scores as large as this stand for "not visible"

// Heads and width of one of a layer's tensors; {0, 0} for a name that is none.
std::pair<std::int64_t, std::int64_t> heads_of(const Model& model, std::int64_t layer,
                                               std::string_view tensor, std::int64_t tokens) {
  const HeadSpec& heads = model.spec().layers[at(layer)].attention.heads;
  if (tensor == "q") return {heads.num_q_heads, heads.qk_head_dim};
  if (tensor == "k") return {heads.num_kv_heads, heads.qk_head_dim};
  if (tensor == "v") return {heads.num_kv_heads, heads.v_head_dim};
  if (tensor == "attention") return {heads.num_q_heads, heads.v_head_dim};
  if (tensor == "scores" || tensor == "weights") return {heads.num_q_heads, tokens};
  if (tensor == "output") return {1, model.spec().model_dim};
  return {0, 0};
}

bool is_of_pairs(std::string_view tensor) { return tensor == "scores" || tensor == "weights"; }

using Shape = std::vector<std::int64_t>;

// [heads, tokens, dim] as [tokens, heads, dim].
std::vector<double> tokens_first(const std::vector<double>& x, std::int64_t tokens, std::int64_t heads,
                                 std::int64_t dim) {
  std::vector<double> rows(x.size());
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t i = 0; i < tokens; ++i) {
      std::copy_n(x.begin() + (h * tokens + i) * dim, dim, rows.begin() + (i * heads + h) * dim);
    }
  }
  return rows;
}

using Kept = std::vector<std::pair<std::string, std::vector<double>>>;

const std::vector<double>* find_kept(const Kept& kept, std::string_view name) {
  const auto found = std::ranges::find(kept, name, &Kept::value_type::first);
  return found == kept.end() ? nullptr : &found->second;
}

bool is_hidden(double score) { return std::abs(score) >= kHidden; }

// Scores (of all pairs where theirs are), or weights, of one layer as rows [tokens, heads, tokens]: by the
// oracle, from our q, k and v.
Result<std::vector<double>> of_pairs(const Model& model, const LayerTensor& seen, std::int64_t tokens,
                                     const Kept& kept) {
  AttentionSpec spec = model.attention_specs()[at(seen.layer)];
  SIGHTLINE_TRY(const MaskSpec everything, parse_mask("all"));
  if (seen.tensor == "scores" && std::ranges::none_of(seen.rows, is_hidden)) spec.mask = everything;
  const HeadSpec& heads = spec.heads;
  const auto view = [&](const char* name, std::int64_t num_heads, std::int64_t dim) {
    return dense_view(find_kept(kept, fmt::format("layer.{}.{}", seen.layer, name))->data(),
                      std::array<std::int64_t, 3>{tokens, num_heads, dim});
  };
  const std::vector<TokenCoord> coords = coords_range(0, tokens);
  reference::AttentionInputs inputs;
  inputs.q = view("q", heads.num_q_heads, heads.qk_head_dim);
  inputs.k = view("k", heads.num_kv_heads, heads.qk_head_dim);
  inputs.v = view("v", heads.num_kv_heads, heads.v_head_dim);
  inputs.q_coords = inputs.kv_coords = coords;
  SIGHTLINE_TRY(const reference::AttentionOutputs outputs,
                reference::attention_forward(spec, inputs, {.weights = true, .scores = true}));
  return tokens_first(seen.tensor == "scores" ? outputs.scores : outputs.weights, tokens, heads.num_q_heads,
                      tokens);
}

// What the run of a text must keep for its tensors.
std::vector<std::string> names_of(const ModelObservation& text) {
  std::vector<std::string> names;
  for (const LayerTensor& seen : text.tensors) {
    if (!is_of_pairs(seen.tensor)) names.push_back(fmt::format("layer.{}.{}", seen.layer, seen.tensor));
    for (const char* tensor : {"q", "k", "v"}) {
      if (is_of_pairs(seen.tensor)) names.push_back(fmt::format("layer.{}.{}", seen.layer, tensor));
    }
  }
  return names;
}

// Theirs with tokens first.
std::vector<double> as_rows(const LayerTensor& seen, const TensorPair& shape, const std::vector<double>& ours,
                            double tolerance) {
  std::vector<double> rows = seen.rows;
  if (seen.tensor == "scores") {
    for (double& x : rows) x = is_hidden(x) ? -INFINITY : x;
  }
  const auto misfit = [&](const std::vector<double>& x) {
    return tensor_misfit({ours, x, shape.num_tokens, shape.num_heads, shape.dim}, tolerance).worst;
  };
  if (seen.shape != Shape{shape.num_heads, shape.num_tokens, shape.dim}) return rows;
  std::vector<double> turned = tokens_first(rows, shape.num_tokens, shape.num_heads, shape.dim);
  return shape.num_heads != shape.num_tokens || misfit(turned) < misfit(rows) ? turned : rows;
}

}  // namespace

std::string ComparedTensor::name() const { return fmt::format("layer.{}.{}", layer, tensor); }

Result<void> validate_tensors(const Model& model, const ModelObservation& text) {
  const std::int64_t tokens = std::ssize(text.ids);
  for (const LayerTensor& seen : text.tensors) {
    if (seen.layer < 0 || seen.layer >= std::ssize(model.spec().layers)) {
      return fail(ErrorKind::kInvalidArgument, "check: {} of layer {}, the model has {} layers", seen.tensor,
                  seen.layer, model.spec().layers.size());
    }
    const auto [heads, dim] = heads_of(model, seen.layer, seen.tensor, tokens);
    if (heads == 0) {
      return fail(ErrorKind::kInvalidArgument,
                  "check: {} of layer {}, expected q, k, v, scores, weights, attention or output",
                  seen.tensor, seen.layer);
    }
    const Shape& shape = seen.shape;
    const bool fits = shape.empty() || shape == Shape{tokens, heads * dim} ||
                      shape == Shape{tokens, heads, dim} || shape == Shape{heads, tokens, dim};
    if (!fits || std::ssize(seen.rows) != tokens * heads * dim) {
      return fail(ErrorKind::kInvalidArgument,
                  "check: {} of layer {} has {} numbers of shape [{}], expected {} tokens, {} heads of {}",
                  seen.tensor, seen.layer, seen.rows.size(), fmt::join(shape, ", "), tokens, heads, dim);
    }
  }
  return {};
}

Result<std::vector<std::pair<std::string, std::vector<double>>>> run_and_keep(
    Model& model, std::span<const TokenId> ids, std::span<const std::string> names) {
  const std::int64_t length = std::ssize(ids);
  Kept kept;
  const TensorTap tap = [&](std::string_view name, StridedView<const float, 2> rows) {
    if (std::ranges::find(names, name) == names.end()) return;
    if (find_kept(kept, name) != nullptr) return;
    std::vector<double>& out = kept.emplace_back(std::string(name), std::vector<double>{}).second;
    out.reserve(at(rows.shape[0] * rows.shape[1]));
    for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
      for (std::int64_t j = 0; j < rows.shape[1]; ++j) out.push_back(rows(i, j));
    }
  };
  SIGHTLINE_TRY(KvCache cache, make_cache(model, {.context = length}));
  const std::vector<SequenceId> sequences{cache.add_sequence()};
  const std::vector<std::int64_t> offsets{0, length};
  const std::vector<TokenCoord> coords = coords_range(0, length);
  const std::vector<std::int64_t> last{length - 1};
  ForwardBatch batch;
  batch.sequences = sequences;
  batch.offsets = offsets;
  batch.token_ids = ids;
  batch.q_coords = coords;
  batch.logit_rows = last;
  std::vector<float> logits(at(model.spec().vocab_size));
  SIGHTLINE_CHECK(model.forward(batch, cache,
                                dense_view<float, 2>(logits.data(), {1, model.spec().vocab_size}), {}, tap));
  return kept;
}

Result<std::vector<ComparedTensor>> compare_tensors(Model& model, std::span<const ModelObservation> texts,
                                                    double tolerance) {
  std::vector<ComparedTensor> all;
  for (std::int64_t layer = 0; layer < std::ssize(model.spec().layers); ++layer) {
    for (const Place& place : kOrder) {
      ComparedTensor& one = all.emplace_back();
      one.layer = layer;
      one.step = place.step;
      one.tensor = place.tensor;
    }
  }
  for (std::size_t t = 0; t < texts.size(); ++t) {
    const ModelObservation& text = texts[t];
    if (text.tensors.empty()) continue;
    const std::int64_t tokens = std::ssize(text.ids);
    SIGHTLINE_TRY(const Kept kept, run_and_keep(model, text.ids, names_of(text)));
    for (const LayerTensor& seen : text.tensors) {
      const std::string name = fmt::format("layer.{}.{}", seen.layer, seen.tensor);
      std::vector<double> ours;
      if (is_of_pairs(seen.tensor)) {
        SIGHTLINE_TRY(ours, of_pairs(model, seen, tokens, kept));
      } else if (const std::vector<double>* found = find_kept(kept, name)) {
        ours = *found;
      } else {
        continue;
      }
      const auto [heads, dim] = heads_of(model, seen.layer, seen.tensor, tokens);
      ComparedTensor& one = *std::ranges::find(all, name, &ComparedTensor::name);
      one.texts.push_back(t);
      one.pairs.push_back({{}, {}, tokens, heads, dim});
      one.theirs.push_back(as_rows(seen, one.pairs.back(), ours, tolerance));
      one.ours.push_back(std::move(ours));
    }
  }
  std::erase_if(all, [](const ComparedTensor& one) { return one.texts.empty(); });
  for (ComparedTensor& one : all) {
    for (std::size_t i = 0; i < one.pairs.size(); ++i) {
      one.pairs[i].ours = one.ours[i];
      one.pairs[i].theirs = one.theirs[i];
    }
  }
  return all;
}

}  // namespace sightline::subjects
