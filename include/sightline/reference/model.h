// A decoder in float64, forward and backward, written straight from the ModelSpec: the oracle of model/
// and train/. It keeps every activation and is slow on purpose.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/reference/model_weights.h"
#include "sightline/spec/loss.h"
#include "sightline/spec/model.h"

namespace sightline::reference {

/// All tokens of one call, seen as one array: several documents are several segments under a mask that
/// says `segment`.
struct ModelInputs {
  std::span<const std::int32_t> token_ids;  ///< [num_tokens], within the vocabulary, padding too
  std::span<const TokenCoord> coords;       ///< [num_tokens]
  std::span<const std::int64_t> rope_pos;   ///< [num_tokens], empty: pos; also indexes learned positions
  std::int64_t rope_length = 0;
  MaskTables tables;
};

/// What one layer computed, rows [num_tokens, width] each.
struct LayerActivations {
  std::vector<double> input;
  std::vector<double> attention_input;               ///< after the norm before attention
  std::vector<double> q_before_norm, k_before_norm;  ///< with qk_norm only
  std::vector<double> q, k, v;                       ///< as attention takes them, before rotation
  std::vector<double> attention;                     ///< heads side by side, before the output projection
  std::vector<double> attention_branch;              ///< after the output projection
  std::vector<double> middle;                        ///< input plus the attention branch
  std::vector<double> ffn_input;
  std::vector<double> gate, up, hidden;  ///< hidden: what `down` reads
  std::vector<double> ffn_branch;
  std::vector<double> output;
};

struct ModelOutputs {
  std::vector<double> logits;  ///< [num_tokens, vocab_size]
  std::vector<LayerActivations> layers;
  std::vector<double> final_norm;  ///< [num_tokens, model_dim]
};

/// x = embedding_scale * embedding[token] + positions[rope_pos]; then each layer:
///   n = norm(x); x += residual_scale * post_norm(o(attention(q n, k n, v n)));
///   n = norm(x) (kParallel: the first n); x += residual_scale * post_norm(down(act(gate n) * up n));
/// logits = softcap(logit_scale * head(norm(x))). Norms before a branch stand under kBefore and kBoth, norms
/// of a branch under kAfter and kBoth. q and k norms come before rotation.
/// Errors (kInvalidArgument): an invalid spec, weights of other sizes, a token id outside the vocabulary, a
/// learned position outside its table.
[[nodiscard]] Result<ModelOutputs> model_forward(const ModelSpec& spec, const ModelWeights& weights,
                                                 const ModelInputs& inputs);

struct ModelGradients {
  ModelWeights weights;
  std::vector<std::vector<double>> d_alibi_slopes;  ///< of each layer, [num_q_heads] or empty
  std::vector<std::vector<double>> d_sink_logits;   ///< of each layer, [num_q_heads] or empty
};

/// The gradient of every weight, from `outputs` of model_forward on the same arguments.
///   d_logits [num_tokens, vocab_size]
[[nodiscard]] Result<ModelGradients> model_backward(const ModelSpec& spec, const ModelWeights& weights,
                                                    const ModelInputs& inputs, const ModelOutputs& outputs,
                                                    std::span<const double> d_logits);

struct LossOutputs {
  double loss = 0;  ///< mean of -ln p over all targets; 0 without targets
  std::int64_t num_targets = 0;
  std::vector<double> d_logits;  ///< [num_tokens, vocab_size]
};

/// Mean cross entropy of the targets that `loss` names (see loss_targets).
///   logits [num_tokens, vocab_size]; is_prompt [num_tokens] or empty.
/// Errors (kInvalidArgument): sizes that do not agree, no tokens or logits, a token id outside the
/// vocabulary.
[[nodiscard]] Result<LossOutputs> mean_cross_entropy(const LossSpec& loss, const ModelInputs& inputs,
                                                     std::span<const std::uint8_t> is_prompt,
                                                     std::span<const double> logits);

}  // namespace sightline::reference
