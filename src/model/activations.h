// The intermediate rows of a forward call: sizes, and buffers that grow to a high-water mark and are kept.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sightline/base/aligned_buffer.h"
#include "sightline/spec/model.h"

namespace sightline {

/// Rows of the feed-forward part that are alive at once; more tokens run in blocks of this many.
inline constexpr std::int64_t kFfnRows = 256;

/// Widths of the rows, over all layers.
struct ActivationWidths {
  std::int64_t model = 0;
  std::int64_t qkv = 0;
  std::int64_t attended = 0;
  std::int64_t ffn = 0;
};

[[nodiscard]] inline ActivationWidths activation_widths(const ModelSpec& spec) {
  ActivationWidths widths;
  widths.model = spec.model_dim;
  for (const LayerSpec& layer : spec.layers) {
    const HeadSpec& heads = layer.attention.heads;
    const std::int64_t qkv = std::int64_t{heads.num_q_heads} * heads.qk_head_dim +
                             std::int64_t{heads.num_kv_heads} * (heads.qk_head_dim + heads.v_head_dim);
    widths.qkv = std::max(widths.qkv, qkv);
    widths.attended = std::max(widths.attended, std::int64_t{heads.num_q_heads} * heads.v_head_dim);
    widths.ffn = std::max(widths.ffn, std::int64_t{layer.ffn.ffn_dim} * (layer.ffn.gated ? 2 : 1));
  }
  return widths;
}

struct Activations {
  AlignedBuffer<float> hidden;     ///< [num_tokens, model_dim], the residual stream
  AlignedBuffer<float> normed;     ///< [num_tokens, model_dim]
  AlignedBuffer<float> qkv;        ///< [num_tokens, q + k + v]
  AlignedBuffer<float> attended;   ///< [num_tokens, num_q_heads * v_head_dim]
  AlignedBuffer<float> branch;     ///< [num_tokens, model_dim], what is added to the stream
  AlignedBuffer<float> ffn;        ///< [min(num_tokens, kFfnRows), ffn_dim or twice that]
  AlignedBuffer<float> head_rows;  ///< [num_logit_rows, model_dim]
  AlignedBuffer<float> changed;    ///< copies for a call's change_rows, empty without

  void reserve(const ModelSpec& spec, std::int64_t num_tokens, std::int64_t num_logit_rows) {
    const ActivationWidths w = activation_widths(spec);
    const auto grow = [](AlignedBuffer<float>& buffer, std::int64_t rows, std::int64_t width) {
      buffer.reserve_discard(static_cast<std::size_t>(rows * width));
    };
    grow(hidden, num_tokens, w.model);
    grow(normed, num_tokens, w.model);
    grow(qkv, num_tokens, w.qkv);
    grow(attended, num_tokens, w.attended);
    grow(branch, num_tokens, w.model);
    grow(ffn, std::min(num_tokens, kFfnRows), w.ffn);
    grow(head_rows, num_logit_rows, w.model);
  }
  [[nodiscard]] std::int64_t bytes() const {
    return static_cast<std::int64_t>((hidden.size() + normed.size() + qkv.size() + attended.size() +
                                      branch.size() + ffn.size() + head_rows.size() + changed.size()) *
                                     sizeof(float));
  }
};

/// What Activations::reserve takes, in floats.
[[nodiscard]] inline std::int64_t activation_floats(const ModelSpec& spec, std::int64_t num_tokens,
                                                    std::int64_t num_logit_rows) {
  const ActivationWidths w = activation_widths(spec);
  return num_tokens * (3 * w.model + w.qkv + w.attended) + std::min(num_tokens, kFfnRows) * w.ffn +
         num_logit_rows * w.model;
}

}  // namespace sightline
