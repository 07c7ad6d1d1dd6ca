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
  const std::vector<NamedTensor> tensors = list_tensors(model, {.embedding = "token_embd",
                                                                .layer = "blk.{}.",
                                                                .attention_norm = "attn_norm",
                                                                .q = "attn_q",
                                                                .k = "attn_k",
                                                                .v = "attn_v",
                                                                .o = "attn_output",
                                                                .ffn_norm = "ffn_norm",
                                                                .gate = "ffn_gate",
                                                                .down = "ffn_down",
                                                                .up = "ffn_up",
                                                                .final_norm = "output_norm",
                                                                .head = "output"});
  SIGHTLINE_TRY(TensorWriter writer,
                create_gguf(path, metadata(model, vocabulary), declarations(tensors), overwrite));
  for (const NamedTensor& tensor : tensors) SIGHTLINE_CHECK(writer.append_f32(tensor.values));
  return writer.commit();
}

}  // namespace sightline::llama2c
