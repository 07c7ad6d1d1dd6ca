#include "llama2c.h"
#include "sightline/base/file.h"
#include "sightline/base/json.h"
#include "sightline/formats/safetensors.h"

namespace sightline::llama2c {

namespace fs = std::filesystem;

namespace {

Json config(const Checkpoint& model) {
  Json json;
  json.set("architectures", JsonArray{Json("LlamaForCausalLM")});
  json.set("model_type", "llama");
  json.set("hidden_size", model.dim);
  json.set("intermediate_size", model.hidden_dim);
  json.set("num_hidden_layers", model.num_layers);
  json.set("num_attention_heads", model.num_q_heads);
  json.set("num_key_value_heads", model.num_kv_heads);
  json.set("head_dim", model.head_dim());
  json.set("vocab_size", model.vocab_size);
  json.set("max_position_embeddings", model.context_length);
  json.set("rms_norm_eps", 1e-5);
  json.set("rope_theta", static_cast<double>(kRopeTheta));
  json.set("rope_scaling", nullptr);
  json.set("hidden_act", "silu");
  json.set("attention_bias", false);
  json.set("mlp_bias", false);
  json.set("tie_word_embeddings", model.is_tied());
  json.set("bos_token_id", kBosId);
  json.set("eos_token_id", kEosId);
  json.set("torch_dtype", "float32");
  return json;
}

Json tokenizer_config() {
  Json json;
  json.set("tokenizer_class", "LlamaTokenizer");
  json.set("add_bos_token", true);
  json.set("add_eos_token", false);
  json.set("bos_token", "<s>");
  json.set("eos_token", "</s>");
  json.set("unk_token", "<unk>");
  json.set("legacy", true);
  return json;
}

Result<void> write_weights(const fs::path& path, const Checkpoint& model, bool overwrite) {
  std::vector<TensorDecl> decls;
  std::vector<std::vector<float>> data;
  const auto add = [&](std::string name, const Weights& w, std::int64_t layer) {
    decls.push_back({std::move(name), DataType::kF32,
                     w.num_rows == 1 ? std::vector{w.row_length} : std::vector{w.num_rows, w.row_length}});
    const auto values = w.layer(layer);
    data.emplace_back(values.begin(), values.end());
  };
  const auto permute_last = [&](std::int64_t num_heads) {
    data.back() = neighbours_to_halves(data.back(), num_heads, model.head_dim(), model.dim);
  };
  add("model.embed_tokens.weight", model.token_embedding, 0);
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    add(layer + "input_layernorm.weight", model.rms_att, i);
    add(layer + "self_attn.q_proj.weight", model.wq, i);
    permute_last(model.num_q_heads);
    add(layer + "self_attn.k_proj.weight", model.wk, i);
    permute_last(model.num_kv_heads);
    add(layer + "self_attn.v_proj.weight", model.wv, i);
    add(layer + "self_attn.o_proj.weight", model.wo, i);
    add(layer + "post_attention_layernorm.weight", model.rms_ffn, i);
    add(layer + "mlp.gate_proj.weight", model.w1, i);
    add(layer + "mlp.down_proj.weight", model.w2, i);
    add(layer + "mlp.up_proj.weight", model.w3, i);
  }
  add("model.norm.weight", model.rms_final, 0);
  if (!model.is_tied()) add("lm_head.weight", model.wcls, 0);

  SIGHTLINE_TRY(TensorWriter writer,
                create_safetensors(path, std::move(decls), {{"format", "pt"}}, overwrite));
  for (const auto& values : data) SIGHTLINE_CHECK(writer.append_f32(values));
  return writer.commit();
}

}  // namespace

Result<void> write_hf_folder(const fs::path& folder, const Checkpoint& model, const Vocabulary& vocabulary,
                             bool overwrite) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return fail(ErrorKind::kCannotCreate, "{}: cannot create: {}", folder.string(), error.message());
  SIGHTLINE_CHECK(write_weights(folder / "model.safetensors", model, overwrite));
  SIGHTLINE_CHECK(write_file(folder / "config.json", config(model).dump(2) + "\n", overwrite));
  SIGHTLINE_CHECK(write_file(folder / "tokenizer.json", tokenizer_json(vocabulary) + "\n", overwrite));
  return write_file(folder / "tokenizer_config.json", tokenizer_config().dump(2) + "\n", overwrite);
}

}  // namespace sightline::llama2c
