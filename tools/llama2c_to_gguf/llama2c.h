// Checkpoints (.bin, version 0) and tokenizers (tok*.bin) of karpathy/llama2.c, and where they go.
//
// Order of the q and k rows. llama2.c rotates neighbours (2i, 2i+1) of each head, as Meta's original weights
// do. GGUF's `llama` architecture rotates neighbours too, so its rows are copied as they are. Hugging Face's
// llama rotates halves (i, i + d/2), so there each head of q and of k is permuted: row i + b*d/2 of the HF
// matrix is row 2i + b of the llama2.c matrix, b in {0, 1}, k by its own number of heads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_writer.h"

namespace sightline::llama2c {

inline constexpr float kRmsEpsilon = 1e-5F;    // fixed in llama2.c's rmsnorm
inline constexpr float kRopeTheta = 10000.0F;  // fixed in llama2.c's forward
inline constexpr std::int64_t kUnkId = 0;
inline constexpr std::int64_t kBosId = 1;
inline constexpr std::int64_t kEosId = 2;

/// One stack of equal matrices, one a layer, or a single matrix.
struct Weights {
  std::vector<float> values;
  std::int64_t num_rows = 0;
  std::int64_t row_length = 0;

  /// The matrix of one layer, [num_rows, row_length].
  [[nodiscard]] std::span<const float> layer(std::int64_t i) const {
    const auto size = static_cast<std::size_t>(num_rows * row_length);
    return std::span(values).subspan(static_cast<std::size_t>(i) * size, size);
  }
};

/// A model; names as in llama2.c. Matrices are [out, in].
struct Checkpoint {
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t vocab_size = 0;
  std::int64_t context_length = 0;
  Weights token_embedding, rms_att, wq, wk, wv, wo, rms_ffn, w1, w2, w3, rms_final;
  Weights wcls;  // no values: the head is tied to the embedding

  [[nodiscard]] bool is_tied() const { return wcls.values.empty(); }
  [[nodiscard]] std::int64_t head_dim() const { return dim / num_q_heads; }
};

/// Token texts by id; U+2581 stands for a space, as in the SentencePiece model.
struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<float> scores;

  /// "<0x0A>": a single byte.
  [[nodiscard]] bool is_byte(std::size_t id) const;
  /// <unk>, <s>, </s>.
  [[nodiscard]] bool is_special(std::size_t id) const { return id <= static_cast<std::size_t>(kEosId); }
};

/// Errors: kInvalidContent (byte offset, field) for sizes out of range, heads that do not divide, a file that
/// is not exactly as long as its header asks, newer versions of the format.
[[nodiscard]] Result<Checkpoint> read_checkpoint(const std::filesystem::path& path);
[[nodiscard]] Result<Vocabulary> read_vocabulary(const std::filesystem::path& path, std::int64_t vocab_size);

/// What a format calls the tensors of a llama, with ".weight" behind each.
struct TensorNames {
  std::string embedding;
  std::string layer;  ///< prefix of a layer with {} for its number
  std::string attention_norm, q, k, v, o;
  std::string ffn_norm, gate, down, up;
  std::string final_norm, head;
};

/// One tensor to be written.
struct NamedTensor {
  TensorDecl decl;
  std::span<const float> values;       ///< of the checkpoint
  std::int64_t num_rotated_heads = 0;  ///< heads of q and of k; 0: rows that nothing rotates
};

/// All tensors in the order of the layers; the head only where it is not tied.
[[nodiscard]] std::vector<NamedTensor> list_tensors(const Checkpoint& model, const TensorNames& names);
[[nodiscard]] std::vector<TensorDecl> declarations(std::span<const NamedTensor> tensors);

/// One f32 GGUF file with model and tokenizer. q and k rows as they are (see above).
[[nodiscard]] Result<void> write_gguf(const std::filesystem::path& path, const Checkpoint& model,
                                      const Vocabulary& vocabulary, bool overwrite);

/// A folder with config.json, model.safetensors (q and k rows permuted, see above), tokenizer.json and
/// tokenizer_config.json. It is created when missing.
[[nodiscard]] Result<void> write_hf_folder(const std::filesystem::path& folder, const Checkpoint& model,
                                           const Vocabulary& vocabulary, bool overwrite);

/// Rows of one matrix of `num_heads` heads, from neighbours to halves.
[[nodiscard]] std::vector<float> neighbours_to_halves(std::span<const float> matrix, std::int64_t num_heads,
                                                      std::int64_t head_dim, std::int64_t row_length);

/// tokenizer.json of the `tokenizers` library: BPE with byte fallback. Its merges are every split of every
/// token into two tokens, ordered by the joined token's score, then by the ids of the parts: the order that
/// Hugging Face's converter of SentencePiece models gives.
[[nodiscard]] std::string tokenizer_json(const Vocabulary& vocabulary);

}  // namespace sightline::llama2c
