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
  const std::vector<NamedTensor> tensors = list_tensors(model, {.embedding = "model.embed_tokens",
                                                                .layer = "model.layers.{}.",
                                                                .attention_norm = "input_layernorm",
                                                                .q = "self_attn.q_proj",
                                                                .k = "self_attn.k_proj",
                                                                .v = "self_attn.v_proj",
                                                                .o = "self_attn.o_proj",
                                                                .ffn_norm = "post_attention_layernorm",
                                                                .gate = "mlp.gate_proj",
                                                                .down = "mlp.down_proj",
                                                                .up = "mlp.up_proj",
                                                                .final_norm = "model.norm",
                                                                .head = "lm_head"});
  SIGHTLINE_TRY(TensorWriter writer,
                create_safetensors(path, declarations(tensors), {{"format", "pt"}}, overwrite));
  for (const NamedTensor& tensor : tensors) {
    if (tensor.num_rotated_heads == 0) {
      SIGHTLINE_CHECK(writer.append_f32(tensor.values));
    } else {
      SIGHTLINE_CHECK(writer.append_f32(
          neighbours_to_halves(tensor.values, tensor.num_rotated_heads, model.head_dim(), model.dim)));
    }
  }
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
