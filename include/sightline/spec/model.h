// A decoder as data: one AttentionSpec per layer, and the kinds of norm, feed-forward, residual and head.
// model/ and the oracle only execute it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/spec/attention_spec.h"

namespace sightline {

enum class NormKind : std::uint8_t {
  kRms,    ///< weight * x / sqrt(mean(x^2) + epsilon)
  kLayer,  ///< weight * (x - mean) / sqrt(var + epsilon) + bias (bias optional)
};
/// Where norms stand in a block.
enum class NormPlacement : std::uint8_t { kBefore, kAfter, kBoth };
/// kSequential: x += attention(norm(x)); x += ffn(norm(x)). kParallel: x += attention(n) + ffn(n), n =
/// norm(x).
enum class ResidualKind : std::uint8_t { kSequential, kParallel };
enum class Activation : std::uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu };
enum class QkNorm : std::uint8_t { kNone, kPerHead, kFullWidth };

struct NormSpec {
  NormKind kind = NormKind::kRms;
  double epsilon = 1e-5;
  bool bias = false;  ///< kLayer only
  bool operator==(const NormSpec&) const = default;
};

struct FfnSpec {
  int ffn_dim = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;  ///< down(act(gate x) * up x); else down(act(up x))
  bool bias = false;
  bool operator==(const FfnSpec&) const = default;
};

struct LayerSpec {
  AttentionSpec attention;
  bool qkv_bias = false;
  bool output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  FfnSpec ffn;
  bool operator==(const LayerSpec&) const = default;
};

struct ModelSpec {
  std::string family;  ///< "llama", "gpt2": for people only, never decides anything
  int vocab_size = 0;
  int model_dim = 0;
  std::int64_t context_length = 0;  ///< tokens it was trained for
  double embedding_scale = 1.0;     ///< multiplies token embeddings
  int num_learned_positions = 0;    ///< rows of a learned position table (indexed by rope_pos), 0: none
  NormSpec norm;
  NormPlacement norm_placement = NormPlacement::kBefore;
  ResidualKind residual = ResidualKind::kSequential;
  double residual_scale = 1.0;  ///< multiplies each branch before it is added
  std::vector<LayerSpec> layers;
  bool tied_head = false;  ///< the head is the embedding table
  bool head_bias = false;
  double final_logit_softcap = 0.0;
  double logit_scale = 1.0;  ///< multiplies logits

  bool operator==(const ModelSpec&) const = default;
};

[[nodiscard]] Result<void> validate(const ModelSpec& spec);
[[nodiscard]] Json to_json(const ModelSpec& spec);
[[nodiscard]] Result<ModelSpec> model_spec_from_json(const Json& json);

/// Trainable numbers, by part. Biases and norms included.
struct ParameterCount {
  std::int64_t embedding = 0, attention = 0, ffn = 0, norms = 0, head = 0;
  [[nodiscard]] std::int64_t total() const { return embedding + attention + ffn + norms + head; }
};
[[nodiscard]] ParameterCount count_parameters(const ModelSpec& spec);

/// Bytes of keys and values of `num_tokens` tokens:
/// sum over layers of num_kv_heads * (qk_head_dim * bytes_k + v_head_dim * bytes_v).
[[nodiscard]] std::int64_t kv_cache_bytes(const ModelSpec& spec, std::int64_t num_tokens, int bytes_k,
                                          int bytes_v);

}  // namespace sightline
