#include "sightline/model/compare.h"

#include <algorithm>
#include <cmath>

#include "model/compare_weights.h"
#include "model/opened_model.h"

namespace sightline {
namespace {

constexpr std::int64_t kMaxMatchedRows = 4096;  // of q, k and v together

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// GGUF holds numbers as float32, config.json as text.
bool are_one_number(const Json& a, const Json& b) {
  double x = 0, y = 0;
  return a.get_number(x) && b.get_number(y) && std::abs(x - y) <= 1e-7 * std::abs(x);
}

// Members of two JSON values that differ, by path.
void compare_json(const std::string& path, const Json* a, const Json* b, std::vector<SpecDifference>& to) {
  if (a != nullptr && b != nullptr && (*a == *b || are_one_number(*a, *b))) return;
  const auto below = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  if (a != nullptr && b != nullptr && a->as_object() != nullptr && b->as_object() != nullptr) {
    for (const auto& [name, value] : *a->as_object()) compare_json(below(name), &value, b->find(name), to);
    for (const auto& [name, value] : *b->as_object()) {
      if (a->find(name) == nullptr) compare_json(below(name), nullptr, &value, to);
    }
    return;
  }
  const bool are_arrays = a != nullptr && b != nullptr && a->as_array() != nullptr &&
                          b->as_array() != nullptr && a->as_array()->size() == b->as_array()->size() &&
                          !a->as_array()->empty() && a->as_array()->front().as_object() != nullptr;
  if (are_arrays) {
    for (std::size_t i = 0; i < a->as_array()->size(); ++i) {
      compare_json(below(std::to_string(i)), &(*a->as_array())[i], &(*b->as_array())[i], to);
    }
    return;
  }
  const auto text = [](const Json* json) { return json == nullptr ? std::string("absent") : json->dump(); };
  to.push_back({path, text(a), text(b), 0});
}

// The same difference in several layers becomes one.
std::vector<SpecDifference> gather_layers(const std::vector<SpecDifference>& all) {
  std::vector<SpecDifference> out;
  const auto rest_of = [](const std::string& member) {
    constexpr std::string_view kLayers = "layers.";
    if (!member.starts_with(kLayers)) return std::string();
    const std::size_t dot = member.find('.', kLayers.size());
    return dot == std::string::npos ? std::string() : member.substr(dot);
  };
  for (const SpecDifference& difference : all) {
    const std::string rest = rest_of(difference.member);
    const auto same = std::ranges::find_if(out, [&](const SpecDifference& other) {
      return !rest.empty() && rest_of(other.member) == rest && other.first == difference.first &&
             other.second == difference.second;
    });
    if (same != out.end()) {
      ++same->num_layers;
      continue;
    }
    out.push_back(difference);
    out.back().num_layers = rest.empty() ? 0 : 1;
  }
  return out;
}

// Rows [begin, end) of a weight.
struct Block {
  int layer = -1;
  std::string name;
  const WeightRef* first = nullptr;
  const WeightRef* second = nullptr;
  std::int64_t begin = 0, end = 0;
  int head_dim = 0, rotary_dim = 0;
};

std::vector<Block> blocks_of(const ModelSpec& spec, const WeightLayout& a, const WeightLayout& b) {
  std::vector<Block> blocks;
  const auto add = [&](int layer, std::string name, const WeightRef& x, const WeightRef& y) {
    if (x.present() && y.present()) blocks.push_back({layer, std::move(name), &x, &y, 0, x.rows, 0, 0});
  };
  add(-1, "embedding", a.embedding, b.embedding);
  add(-1, "positions", a.positions, b.positions);
  for (int l = 0; l < static_cast<int>(spec.layers.size()); ++l) {
    const LayerRefs& x = a.layers[at(l)];
    const LayerRefs& y = b.layers[at(l)];
    const AttentionSpec& attention = spec.layers[at(l)].attention;
    const HeadSpec& heads = attention.heads;
    const int rotary = attention.rope.pairing == RopePairing::kNone ? 0 : attention.rope.rotary_dim;
    const std::int64_t q_rows = std::int64_t{heads.num_q_heads} * heads.qk_head_dim;
    const std::int64_t k_rows = std::int64_t{heads.num_kv_heads} * heads.qk_head_dim;
    const std::int64_t v_rows = std::int64_t{heads.num_kv_heads} * heads.v_head_dim;
    add(l, "attention norm", x.attention_norm.weight, y.attention_norm.weight);
    blocks.push_back({l, "q", &x.qkv, &y.qkv, 0, q_rows, heads.qk_head_dim, rotary});
    blocks.push_back({l, "k", &x.qkv, &y.qkv, q_rows, q_rows + k_rows, heads.qk_head_dim, rotary});
    blocks.push_back(
        {l, "v", &x.qkv, &y.qkv, q_rows + k_rows, q_rows + k_rows + v_rows, heads.v_head_dim, 0});
    add(l, "q, k, v biases", x.qkv_bias, y.qkv_bias);
    add(l, "output", x.output, y.output);
    add(l, "feed-forward norm", x.ffn_norm.weight, y.ffn_norm.weight);
    add(l, "up", x.up, y.up);
    add(l, "down", x.down, y.down);
  }
  add(-1, "final norm", a.final_norm.weight, b.final_norm.weight);
  add(-1, "head", a.head, b.head);
  return blocks;
}

double tolerance_of(const TensorSource& source, const WeightRef& ref) {
  double tolerance = 0;
  for (const WeightPart& part : ref.parts) {
    if (const TensorInfo* info = source.find(part.tensor))
      tolerance = std::max(tolerance, rounding_of(info->type));
  }
  return tolerance;
}

Result<std::vector<float>> read_rows(const TensorSource& source, const WeightRef& ref, std::int64_t begin,
                                     std::int64_t end) {
  std::vector<float> rows(at((end - begin) * std::max<std::int64_t>(ref.cols, 1)));
  WeightReader reader(source, ref);
  SIGHTLINE_CHECK(reader.read(begin, end, rows));
  return rows;
}

// q, k and v of a layer that no relation of their own explains: rows of another fused layout?
Result<void> relate_fused(const OpenedModel& a, const OpenedModel& b,
                          std::vector<WeightComparison>& weights) {
  for (std::size_t i = 0; i + 2 < weights.size(); ++i) {
    const bool unexplained = weights[i].block == "q" && weights[i + 1].block == "k" &&
                             std::any_of(&weights[i], &weights[i] + 3, [](const WeightComparison& w) {
                               return w.relation == WeightRelation::kOther;
                             });
    if (!unexplained) continue;
    const WeightRef& x = a.layout.layers[at(weights[i].layer)].qkv;
    const WeightRef& y = b.layout.layers[at(weights[i].layer)].qkv;
    if (x.rows > kMaxMatchedRows) continue;
    SIGHTLINE_TRY(const std::vector<float> first, read_rows(a.files.tensors(), x, 0, x.rows));
    SIGHTLINE_TRY(const std::vector<float> second, read_rows(b.files.tensors(), y, 0, y.rows));
    const double tolerance = std::max(tolerance_of(a.files.tensors(), x), tolerance_of(b.files.tensors(), y));
    if (!are_rows_permuted(x.rows, x.cols, first, second, tolerance)) continue;
    for (std::size_t j = i; j < i + 3; ++j) weights[j].relation = WeightRelation::kRowsPermuted;
  }
  return {};
}

}  // namespace

std::string_view to_string(WeightRelation relation) {
  constexpr std::string_view kNames[] = {"equal",      "rounding",      "row order", "rows of other heads",
                                         "head order", "rows permuted", "scaled",    "transposed",
                                         "other"};
  return kNames[static_cast<std::size_t>(relation)];
}

Result<ModelComparison> compare_models(const std::string& first, const std::string& second,
                                       const LoadOptions& options) {
  SIGHTLINE_TRY(const OpenedModel a, open_model(first, options));
  SIGHTLINE_TRY(const OpenedModel b, open_model(second, options));
  ModelComparison comparison;
  const Json spec_a = to_json(a.info.spec), spec_b = to_json(b.info.spec);
  std::vector<SpecDifference> all;
  compare_json("", &spec_a, &spec_b, all);
  comparison.spec = gather_layers(all);
  if (a.info.spec.layers.size() != b.info.spec.layers.size()) {
    comparison.notes.push_back("the models have other numbers of layers: no weights were compared");
    return comparison;
  }
  for (const Block& block : blocks_of(a.info.spec, a.layout, b.layout)) {
    if (block.first->rows != block.second->rows || block.first->cols != block.second->cols) {
      comparison.notes.push_back(fmt::format("layer {}, {}: {} x {} against {} x {}, not compared",
                                             block.layer, block.name, block.first->rows, block.first->cols,
                                             block.second->rows, block.second->cols));
      continue;
    }
    SIGHTLINE_TRY(const auto x, read_rows(a.files.tensors(), *block.first, block.begin, block.end));
    SIGHTLINE_TRY(const auto y, read_rows(b.files.tensors(), *block.second, block.begin, block.end));
    const double tolerance = std::max(tolerance_of(a.files.tensors(), *block.first),
                                      tolerance_of(b.files.tensors(), *block.second));
    WeightComparison result;
    result.layer = block.layer;
    result.block = block.name;
    relate({block.end - block.begin, std::max<std::int64_t>(block.first->cols, 1), block.head_dim,
            block.rotary_dim},
           x, y, tolerance, result);
    comparison.weights.push_back(std::move(result));
  }
  SIGHTLINE_CHECK(relate_fused(a, b, comparison.weights));
  return comparison;
}

}  // namespace sightline
