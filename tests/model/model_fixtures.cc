#include "model/model_fixtures.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>

#include "sightline/base/file.h"
#include "sightline/base/rng.h"
#include "sightline/formats/gguf_writer.h"
#include "sightline/formats/safetensors.h"

namespace sightline::testing {

namespace {

template <typename T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

void must(Result<void> result) {
  if (!result) throw std::runtime_error(result.error().message);
}

void write_tensors(TensorWriter writer, const std::map<std::string, TestTensor>& tensors) {
  for (const auto& [name, tensor] : tensors) must(writer.append_f32(tensor.values));
  must(writer.commit());
}

std::vector<TensorDecl> declarations(const std::map<std::string, TestTensor>& tensors) {
  std::vector<TensorDecl> decls;
  for (const auto& [name, tensor] : tensors) decls.push_back({name, DataType::kF32, tensor.shape});
  return decls;
}

// llama.cpp's converter: rows of a head as [2, d/2] turned to [d/2, 2].
TestTensor to_neighbours(const TestTensor& tensor, int head_dim) {
  TestTensor out = tensor;
  const std::int64_t width = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
  const int half = head_dim / 2;
  for (std::int64_t row = 0; row < tensor.shape[0]; ++row) {
    const std::int64_t head = row / head_dim;
    const std::int64_t in_head = row % head_dim;
    const std::int64_t to = head * head_dim + 2 * (in_head % half) + in_head / half;
    std::copy_n(tensor.values.begin() + row * width, width, out.values.begin() + to * width);
  }
  return out;
}

TestTensor turned(const TestTensor& tensor) {
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t cols = tensor.shape[1];
  TestTensor out{{cols, rows}, std::vector<float>(tensor.values.size())};
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      out.values[static_cast<std::size_t>(j * rows + i)] =
          tensor.values[static_cast<std::size_t>(i * cols + j)];
    }
  }
  return out;
}

TestTensor stacked(const std::vector<const TestTensor*>& parts) {
  TestTensor out = *parts[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    out.shape[0] += parts[i]->shape[0];
    out.values.insert(out.values.end(), parts[i]->values.begin(), parts[i]->values.end());
  }
  return out;
}

// Splits "layer.3.q.weight" into 3 and "q.weight"; -1 for names outside layers.
std::pair<int, std::string> split_layer(const std::string& name) {
  if (!name.starts_with("layer.")) return {-1, name};
  const std::size_t dot = name.find('.', 6);
  return {std::stoi(name.substr(6, dot - 6)), name.substr(dot + 1)};
}

std::string renamed(const std::string& name, const std::map<std::string, std::string>& names,
                    const std::string& layer_prefix) {
  const auto [layer, rest] = split_layer(name);
  const std::size_t dot = rest.rfind('.');
  const std::string stem = names.at(rest.substr(0, dot));
  const std::string prefix = layer < 0 ? "" : fmt::format(fmt::runtime(layer_prefix), layer);
  return prefix + stem + rest.substr(dot);
}

}  // namespace

TempFolder::TempFolder() {
  static std::atomic<int> counter = 0;
  path_ =
      std::filesystem::temp_directory_path() / fmt::format("sightline_model_{}_{}", ::getpid(), counter++);
  std::filesystem::create_directories(path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

ModelSpec small_llama_spec() {
  ModelSpec spec;
  spec.family = "llama";
  spec.vocab_size = 50;
  spec.model_dim = 24;
  spec.context_length = 256;
  spec.norm = {NormKind::kRms, 1e-5, false};
  LayerSpec layer;
  layer.attention.heads = {4, 2, 8, 8};
  layer.attention.mask = mask_rule(MaskOp::kCausal);
  layer.attention.rope.pairing = RopePairing::kHalfSplit;
  layer.attention.rope.rotary_dim = 8;
  layer.attention.rope.theta = 1000;
  layer.ffn.ffn_dim = 40;
  spec.layers.assign(3, layer);
  return spec;
}

ModelSpec small_gpt2_spec() {
  ModelSpec spec;
  spec.family = "gpt2";
  spec.vocab_size = 50;
  spec.model_dim = 24;
  spec.context_length = 40;
  spec.num_learned_positions = 40;
  spec.norm = {NormKind::kLayer, 1e-5, true};
  LayerSpec layer;
  layer.attention.heads = {3, 3, 8, 8};
  layer.qkv_bias = layer.output_bias = true;
  layer.ffn = {96, Activation::kGeluTanh, false, true};
  spec.layers.assign(2, layer);
  spec.tied_head = true;
  return spec;
}

TestModel random_model(const ModelSpec& spec, std::uint64_t seed) {
  TestModel model;
  model.spec = spec;
  Rng rng(seed);
  for_each_weight(make_layout(spec, plain_tensor_names()), [&](std::string_view, const WeightRef& ref) {
    for (const WeightPart& part : ref.parts) {
      const bool is_norm = part.tensor.find("norm.weight") != std::string::npos;
      TestTensor tensor;
      tensor.shape = ref.cols == 0 ? std::vector{part.num_rows} : std::vector{part.num_rows, ref.cols};
      const double size = is_norm         ? 0.3
                          : ref.cols == 0 ? 0.2
                                          : 1.3 / std::sqrt(static_cast<double>(ref.cols));
      const std::int64_t count = part.num_rows * std::max<std::int64_t>(ref.cols, 1);
      for (std::int64_t i = 0; i < count; ++i) {
        tensor.values.push_back(static_cast<float>((is_norm ? 1.0 : 0.0) + size * rng.next_normal()));
      }
      model.tensors[part.tensor] = std::move(tensor);
    }
  });
  return model;
}

TensorSource as_source(const TestModel& model) {
  std::vector<std::byte> bytes;
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : model.tensors) {
    const std::size_t size = tensor.values.size() * sizeof(float);
    infos.push_back({name, DataType::kF32, tensor.shape, 0, bytes.size(), size});
    bytes.resize(bytes.size() + size);
    std::memcpy(bytes.data() + bytes.size() - size, tensor.values.data(), size);
  }
  return must(
      TensorSource::create("test model", {memory_bytes("test model", std::move(bytes))}, std::move(infos)));
}

Entries llama_metadata(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers[0];
  const auto u32 = [](auto v) { return GgufValue(static_cast<std::uint32_t>(v)); };
  Entries entries;
  const auto add = [&](const char* key, GgufValue value) { entries.push_back({key, std::move(value), 0}); };
  add("general.architecture", std::string("llama"));
  add("general.name", std::string("a small random model"));
  add("llama.block_count", u32(spec.layers.size()));
  add("llama.context_length", u32(spec.context_length));
  add("llama.embedding_length", u32(spec.model_dim));
  add("llama.feed_forward_length", u32(layer.ffn.ffn_dim));
  add("llama.attention.head_count", u32(layer.attention.heads.num_q_heads));
  add("llama.attention.head_count_kv", u32(layer.attention.heads.num_kv_heads));
  add("llama.attention.key_length", u32(layer.attention.heads.qk_head_dim));
  add("llama.attention.value_length", u32(layer.attention.heads.v_head_dim));
  add("llama.attention.layer_norm_rms_epsilon", static_cast<float>(spec.norm.epsilon));
  add("llama.rope.freq_base", static_cast<float>(layer.attention.rope.theta));
  add("llama.rope.dimension_count", u32(layer.attention.rope.rotary_dim));
  add("llama.vocab_size", u32(spec.vocab_size));
  return entries;
}

void set_entry(Entries& entries, const std::string& key, GgufValue value) {
  for (GgufEntry& entry : entries) {
    if (entry.key == key) {
      entry.value = std::move(value);
      return;
    }
  }
  entries.push_back({key, std::move(value), 0});
}

void remove_entry(Entries& entries, const std::string& key) {
  std::erase_if(entries, [&](const GgufEntry& entry) { return entry.key == key; });
}

void write_llama_gguf(const std::string& path, const TestModel& model, const Entries& metadata,
                      const std::map<std::string, TestTensor>& more) {
  const std::map<std::string, std::string> names = {
      {"embedding", "token_embd"},
      {"final_norm", "output_norm"},
      {"head", "output"},
      {"attention_norm", "attn_norm"},
      {"ffn_norm", "ffn_norm"},
      {"q", "attn_q"},
      {"k", "attn_k"},
      {"v", "attn_v"},
      {"o", "attn_output"},
      {"gate", "ffn_gate"},
      {"up", "ffn_up"},
      {"down", "ffn_down"},
  };
  std::map<std::string, TestTensor> tensors = more;
  const int head_dim = model.spec.layers[0].attention.heads.qk_head_dim;
  for (const auto& [name, tensor] : model.tensors) {
    const std::string part = split_layer(name).second;
    const bool is_qk = part.starts_with("q.") || part.starts_with("k.");
    tensors[renamed(name, names, "blk.{}.")] = is_qk ? to_neighbours(tensor, head_dim) : tensor;
  }
  write_tensors(must(create_gguf(path, metadata, declarations(tensors), true)), tensors);
}

Json llama_config(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers[0];
  return JsonObject{{"architectures", JsonArray{"LlamaForCausalLM"}},
                    {"model_type", "llama"},
                    {"hidden_size", spec.model_dim},
                    {"num_hidden_layers", static_cast<std::int64_t>(spec.layers.size())},
                    {"num_attention_heads", layer.attention.heads.num_q_heads},
                    {"num_key_value_heads", layer.attention.heads.num_kv_heads},
                    {"head_dim", layer.attention.heads.qk_head_dim},
                    {"intermediate_size", layer.ffn.ffn_dim},
                    {"max_position_embeddings", spec.context_length},
                    {"vocab_size", spec.vocab_size},
                    {"rms_norm_eps", spec.norm.epsilon},
                    {"rope_theta", layer.attention.rope.theta},
                    {"rope_scaling", Json()},
                    {"hidden_act", "silu"},
                    {"attention_bias", layer.qkv_bias},
                    {"mlp_bias", layer.ffn.bias},
                    {"tie_word_embeddings", spec.tied_head},
                    {"torch_dtype", "float32"}};
}

Json gpt2_config(const ModelSpec& spec) {
  const LayerSpec& layer = spec.layers[0];
  return JsonObject{{"architectures", JsonArray{"GPT2LMHeadModel"}},
                    {"model_type", "gpt2"},
                    {"n_embd", spec.model_dim},
                    {"n_layer", static_cast<std::int64_t>(spec.layers.size())},
                    {"n_head", layer.attention.heads.num_q_heads},
                    {"n_positions", spec.num_learned_positions},
                    {"n_inner", layer.ffn.ffn_dim},
                    {"vocab_size", spec.vocab_size},
                    {"activation_function", "gelu_new"},
                    {"layer_norm_epsilon", spec.norm.epsilon},
                    {"tie_word_embeddings", spec.tied_head}};
}

Json with_member(const Json& config, const std::string& key, const Json& value) {
  Json out = without_member(config, key);
  out.set(key, value);
  return out;
}

Json without_member(const Json& config, const std::string& key) {
  JsonObject members;
  for (const JsonMember& member : *config.as_object()) {
    if (member.first != key) members.push_back(member);
  }
  return members;
}

void write_hf(const std::string& folder, const std::map<std::string, TestTensor>& tensors,
              const Json& config) {
  std::filesystem::create_directories(folder);
  must(write_file(folder + "/config.json", config.dump(2), true));
  write_tensors(
      must(create_safetensors_folder(folder, declarations(tensors), {}, std::uint64_t{1} << 40, true)),
      tensors);
}

void write_llama_hf(const std::string& folder, const TestModel& model, const Json& config,
                    const std::map<std::string, TestTensor>& more) {
  const std::map<std::string, std::string> names = {
      {"embedding", "model.embed_tokens"},
      {"final_norm", "model.norm"},
      {"head", "lm_head"},
      {"attention_norm", "input_layernorm"},
      {"ffn_norm", "post_attention_layernorm"},
      {"q", "self_attn.q_proj"},
      {"k", "self_attn.k_proj"},
      {"v", "self_attn.v_proj"},
      {"o", "self_attn.o_proj"},
      {"gate", "mlp.gate_proj"},
      {"up", "mlp.up_proj"},
      {"down", "mlp.down_proj"},
  };
  std::map<std::string, TestTensor> tensors = more;
  for (const auto& [name, tensor] : model.tensors) {
    tensors[renamed(name, names, "model.layers.{}.")] = tensor;
  }
  write_hf(folder, tensors, config);
}

void write_gpt2_hf(const std::string& folder, const TestModel& model, const Json& config,
                   const std::string& prefix) {
  std::map<std::string, TestTensor> tensors;
  const auto& from = model.tensors;
  tensors[prefix + "wte.weight"] = from.at("embedding.weight");
  tensors[prefix + "wpe.weight"] = from.at("positions.weight");
  if (from.contains("head.weight")) tensors["lm_head.weight"] = from.at("head.weight");
  for (const char* kind : {".weight", ".bias"}) {
    tensors[prefix + "ln_f" + kind] = from.at(std::string("final_norm") + kind);
  }
  for (std::size_t i = 0; i < model.spec.layers.size(); ++i) {
    const std::string in = fmt::format("layer.{}.", i);
    const std::string out = fmt::format("{}h.{}.", prefix, i);
    for (const std::string kind : {".weight", ".bias"}) {
      const auto linear = [&](const TestTensor& t) { return kind == ".weight" ? turned(t) : t; };
      tensors[out + "ln_1" + kind] = from.at(in + "attention_norm" + kind);
      tensors[out + "ln_2" + kind] = from.at(in + "ffn_norm" + kind);
      tensors[out + "attn.c_attn" + kind] =
          linear(stacked({&from.at(in + "q" + kind), &from.at(in + "k" + kind), &from.at(in + "v" + kind)}));
      tensors[out + "attn.c_proj" + kind] = linear(from.at(in + "o" + kind));
      tensors[out + "mlp.c_fc" + kind] = linear(from.at(in + "up" + kind));
      tensors[out + "mlp.c_proj" + kind] = linear(from.at(in + "down" + kind));
    }
    // The causal picture that old checkpoints carry as a buffer.
    tensors[out + "attn.bias"] = {{1, 1, 2, 2}, {1, 0, 1, 1}};
    tensors[out + "attn.masked_bias"] = {{}, {-1e4F}};
  }
  write_hf(folder, tensors, config);
}

std::string test_data(const std::string& name) {
  const char* folder = std::getenv("SIGHTLINE_TEST_DATA");
  if (folder == nullptr) return "";
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path.string() : "";
}

}  // namespace sightline::testing
