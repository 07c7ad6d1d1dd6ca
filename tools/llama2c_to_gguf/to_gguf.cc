#include "llama2c.h"
#include "sightline/formats/gguf_writer.h"

namespace sightline::llama2c {

namespace {

// Numbers of tokenizer.ggml.token_type.
enum TokenType : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

std::vector<GgufEntry> metadata(const Checkpoint& model, const Vocabulary& vocabulary) {
  std::vector<GgufEntry> out;
  const auto set = [&](std::string key, GgufValue value) {
    out.push_back({std::move(key), std::move(value), 0});
  };
  const auto u32 = [](std::int64_t value) { return GgufValue(static_cast<std::uint32_t>(value)); };
  set("general.architecture", std::string("llama"));
  set("general.name", std::string("llama2.c"));
  set("general.file_type", u32(0));  // all F32
  set("llama.vocab_size", u32(model.vocab_size));
  set("llama.context_length", u32(model.context_length));
  set("llama.embedding_length", u32(model.dim));
  set("llama.block_count", u32(model.num_layers));
  set("llama.feed_forward_length", u32(model.hidden_dim));
  set("llama.attention.head_count", u32(model.num_q_heads));
  set("llama.attention.head_count_kv", u32(model.num_kv_heads));
  set("llama.attention.layer_norm_rms_epsilon", kRmsEpsilon);
  set("llama.rope.dimension_count", u32(model.head_dim()));
  set("llama.rope.freq_base", kRopeTheta);

  GgufStrings tokens;
  std::vector<std::int32_t> types;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    tokens.push_back(vocabulary.tokens[id]);
    types.push_back(id == kUnkId                ? kUnknown
                    : vocabulary.is_special(id) ? kControl
                    : vocabulary.is_byte(id)    ? kByte
                                                : kNormal);
  }
  set("tokenizer.ggml.model", std::string("llama"));
  set("tokenizer.ggml.pre", std::string("default"));
  set("tokenizer.ggml.tokens", GgufArray(std::move(tokens)));
  set("tokenizer.ggml.scores", GgufArray(vocabulary.scores));
  set("tokenizer.ggml.token_type", GgufArray(std::move(types)));
  set("tokenizer.ggml.bos_token_id", u32(kBosId));
  set("tokenizer.ggml.eos_token_id", u32(kEosId));
  set("tokenizer.ggml.unknown_token_id", u32(kUnkId));
  set("tokenizer.ggml.add_bos_token", true);
  set("tokenizer.ggml.add_eos_token", false);
  set("tokenizer.ggml.add_space_prefix", true);
  return out;
}

}  // namespace

Result<void> write_gguf(const std::filesystem::path& path, const Checkpoint& model,
                        const Vocabulary& vocabulary, bool overwrite) {
  std::vector<TensorDecl> decls;
  std::vector<std::span<const float>> data;
  const auto add = [&](std::string name, const Weights& w, std::int64_t layer) {
    const bool is_vector = w.num_rows == 1;
    decls.push_back({std::move(name), DataType::kF32,
                     is_vector ? std::vector{w.row_length} : std::vector{w.num_rows, w.row_length}});
    data.push_back(w.layer(layer));
  };
  add("token_embd.weight", model.token_embedding, 0);
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    add(block + "attn_norm.weight", model.rms_att, i);
    add(block + "attn_q.weight", model.wq, i);
    add(block + "attn_k.weight", model.wk, i);
    add(block + "attn_v.weight", model.wv, i);
    add(block + "attn_output.weight", model.wo, i);
    add(block + "ffn_norm.weight", model.rms_ffn, i);
    add(block + "ffn_gate.weight", model.w1, i);
    add(block + "ffn_down.weight", model.w2, i);
    add(block + "ffn_up.weight", model.w3, i);
  }
  add("output_norm.weight", model.rms_final, 0);
  if (!model.is_tied()) add("output.weight", model.wcls, 0);

  SIGHTLINE_TRY(TensorWriter writer,
                create_gguf(path, metadata(model, vocabulary), std::move(decls), overwrite));
  for (const auto values : data) SIGHTLINE_CHECK(writer.append_f32(values));
  return writer.commit();
}

}  // namespace sightline::llama2c
