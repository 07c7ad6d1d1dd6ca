// The weights of a model in memory: matrices packed for linear_forward as `matmul` says, vectors as they
// are in f32, all read only after loading.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/weight_layout.h"
#include "sightline/base/aligned_buffer.h"
#include "sightline/base/error.h"
#include "sightline/ops/linear.h"

namespace sightline {

struct NormWeights {
  AlignedBuffer<float> weight;
  AlignedBuffer<float> bias;  ///< empty: none
  [[nodiscard]] bool present() const { return weight.size() > 0; }
};

struct LayerWeights {
  NormWeights attention_norm, attention_post_norm;
  PackedLinear qkv;  ///< q heads, then k heads, then v heads; q and k rows in halves
  AlignedBuffer<float> qkv_bias;
  AlignedBuffer<float> q_norm, k_norm;
  PackedLinear output;
  AlignedBuffer<float> output_bias;
  NormWeights ffn_norm, ffn_post_norm;
  PackedLinear up;  ///< gate rows, then up rows, when gated
  AlignedBuffer<float> up_bias;
  PackedLinear down;
  AlignedBuffer<float> down_bias;
};

struct ModelWeights {
  PackedLinear embedding;  ///< also the head when that is tied
  AlignedBuffer<float> positions;
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  PackedLinear head;
  AlignedBuffer<float> head_bias;
};

/// Reads one tensor after the other and packs it: peak memory is the result plus one head or panel (plus one
/// tensor for files with transposed weights).
[[nodiscard]] Result<ModelWeights> load_weights(const WeightLayout& layout, const TensorSource& source,
                                                Matmul matmul);

[[nodiscard]] std::int64_t num_bytes(const ModelWeights& weights);
/// Over the bits of every weight, padding included; not for security.
[[nodiscard]] std::uint64_t hash(const ModelWeights& weights);

}  // namespace sightline
