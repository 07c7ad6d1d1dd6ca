#include "sightline/model/model_info.h"

#include <algorithm>

#include "model/families/family.h"
#include "model/opened_model.h"
#include "model/text_parts.h"

namespace sightline {

namespace {

std::vector<ModelInfo::TypeCount> count_types(const TensorSource& source) {
  std::vector<ModelInfo::TypeCount> counts;
  for (const TensorInfo& tensor : source.tensors()) {
    const std::string type = to_string(tensor.type);
    auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.type == type; });
    if (it == counts.end()) it = counts.insert(counts.end(), {type, 0, 0});
    ++it->num_tensors;
    it->bytes += static_cast<std::int64_t>(tensor.num_bytes);
  }
  return counts;
}

bool is_vocabulary_only(const ModelFiles& files) {
  return files.gguf && files.tensors().tensors().empty() &&
         files.gguf->metadata().has("tokenizer.ggml.tokens");
}

Result<void> read_text_info(const ModelFiles& files, const LoadOptions& options, ModelInfo& info) {
  SIGHTLINE_TRY(TextParts text,
                files.gguf ? read_text_parts(*files.gguf, options) : read_text_parts(info.path, options));
  if (!text.tokenizer) return {};
  if (!info.vocabulary_only && text.tokenizer->vocab_size() > info.spec.vocab_size) {
    return fail(ErrorKind::kInvalidContent, "{}: the tokenizer has {} tokens, the embedding table {} rows",
                info.path, text.tokenizer->vocab_size(), info.spec.vocab_size);
  }
  info.tokenizer = text.tokenizer->describe();
  info.tokenizer_bytes = text.bytes;
  info.has_chat_template = !text.chat_template.empty();
  return {};
}

std::string describe_rest(const LayerSpec& layer) {
  const auto activation = [&] {
    switch (layer.ffn.activation) {
      case Activation::kSilu:
        return "silu";
      case Activation::kGeluTanh:
        return "gelu (tanh)";
      case Activation::kGeluErf:
        return "gelu (erf)";
      case Activation::kRelu:
        return "relu";
    }
    return "?";
  };
  std::string text =
      fmt::format("feed-forward {} {}{}", layer.ffn.ffn_dim, layer.ffn.gated ? "gated " : "", activation());
  if (layer.qk_norm == QkNorm::kPerHead) text += ", q and k normalised per head";
  if (layer.qk_norm == QkNorm::kFullWidth) text += ", q and k normalised over the whole width";
  std::string biases;
  if (layer.qkv_bias) biases += " q k v";
  if (layer.output_bias) biases += " output";
  if (layer.ffn.bias) biases += " feed-forward";
  text += biases.empty() ? ", no biases" : ", biases:" + biases;
  return text;
}

}  // namespace

Result<OpenedModel> open_model(const std::string& path, const LoadOptions& options) {
  OpenedModel opened;
  SIGHTLINE_TRY(opened.files, open_model_files(path, options));
  ModelInfo& info = opened.info;
  info.path = path;
  info.file_kind = opened.files.file_kind;
  info.warnings = opened.files.tensors().warnings();
  info.vocabulary_only = is_vocabulary_only(opened.files);
  if (!info.vocabulary_only) {
    SIGHTLINE_TRY(FamilyModel model, read_family(opened.files, options));
    info.spec = std::move(model.spec);
    info.assumptions = std::move(model.assumptions);
    info.qk_row_order = std::move(model.qk_row_order);
    info.tensor_types = count_types(opened.files.tensors());
    info.matmul = options.matmul;
    info.packed_weight_bytes = packed_bytes(model.layout, opened.files.tensors(), options.matmul);
    opened.layout = std::move(model.layout);
  }
  SIGHTLINE_CHECK(read_text_info(opened.files, options, info));
  for (const StatedKey& stated : options.stated_keys) {
    info.assumptions.push_back({stated.key, stated.value.dump(), "stated by the caller"});
  }
  if (!options.pre_tokenizer.empty()) {
    info.assumptions.push_back({"--pre", options.pre_tokenizer, "stated by the caller"});
  }
  return opened;
}

Result<ModelInfo> read_model_info(const std::string& path, const LoadOptions& options) {
  SIGHTLINE_TRY(OpenedModel opened, open_model(path, options));
  return std::move(opened.info);
}

std::vector<LayerGroup> layer_groups(const ModelSpec& spec) {
  std::vector<LayerGroup> groups;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const int layer = static_cast<int>(i);
    if (i > 0 && spec.layers[i] == spec.layers[i - 1]) {
      groups.back().end = layer + 1;
    } else {
      groups.push_back({layer, layer + 1, describe(spec.layers[i].attention), describe_rest(spec.layers[i])});
    }
  }
  return groups;
}

Json to_json(const ModelInfo& info) {
  JsonArray assumptions;
  for (const Assumption& a : info.assumptions) {
    assumptions.push_back(JsonObject{{"key", a.key}, {"taken", a.taken}, {"reason", a.reason}});
  }
  JsonArray types;
  for (const ModelInfo::TypeCount& t : info.tensor_types) {
    types.push_back(JsonObject{{"type", t.type}, {"num_tensors", t.num_tensors}, {"bytes", t.bytes}});
  }
  JsonArray warnings(info.warnings.begin(), info.warnings.end());
  JsonObject json{{"path", info.path},
                  {"file_kind", info.file_kind},
                  {"vocabulary_only", info.vocabulary_only},
                  {"assumptions", std::move(assumptions)},
                  {"warnings", std::move(warnings)},
                  {"tokenizer", info.tokenizer ? Json(*info.tokenizer) : Json()},
                  {"has_chat_template", info.has_chat_template}};
  if (!info.vocabulary_only) {
    json.emplace_back("qk_row_order", info.qk_row_order);
    json.emplace_back("tensor_types", std::move(types));
    json.emplace_back("num_parameters", count_parameters(info.spec).total());
    json.emplace_back("spec", to_json(info.spec));
  }
  return json;
}

}  // namespace sightline
