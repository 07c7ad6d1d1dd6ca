// What the forward and the backward of the model share: checks and the attention call of one layer.
#pragma once

#include "sightline/reference/attention.h"
#include "sightline/reference/model.h"

namespace sightline::reference {

Result<void> check_model_call(const ModelSpec& spec, const ModelWeights& weights, const ModelInputs& inputs,
                              const char* function);

/// Rotary (and learned) position of a row.
std::int64_t model_rope_pos(const ModelInputs& inputs, std::size_t row);

/// The attention of one layer over the call's own tokens; views into `layer`.
AttentionInputs layer_attention_inputs(const HeadSpec& heads, const ModelInputs& inputs,
                                       const LayerActivations& layer);

/// The head's matrix: its own or the embedding.
const std::vector<double>& head_weight(const ModelWeights& weights);

}  // namespace sightline::reference
