// The derivative of attention_forward on the same plan, fused and recomputing: no array of pairs is ever
// held.
#pragma once

#include "sightline/attention/attention.h"

namespace sightline {

/// What the forward was given and gave, and the gradient of the loss with respect to its results.
struct AttentionUpstream {
  StridedView<const float, 3> q;      ///< [num_q_tokens, num_q_heads, qk_head_dim], unrotated
  StridedView<const float, 3> out;    ///< [num_q_tokens, num_q_heads, v_head_dim], of attention_forward
  StridedView<const float, 2> lse;    ///< [num_q_tokens, num_q_heads], of the same call
  StridedView<const float, 3> d_out;  ///< shaped as out
  StridedView<const float, 2> d_lse;  ///< shaped as lse, or no data: 0
};

/// Where the gradients go; they are written, not added. A view without data is not computed, except that d_q,
/// d_k and d_v come together. No stride of d_q, d_k, d_v may be 0 where the extent is more than 1.
struct AttentionGradients {
  StridedView<float, 3> d_q;  ///< shaped as q, of the unrotated q
  StridedView<float, 3> d_k;  ///< [num_kv_tokens, num_kv_heads, qk_head_dim], of the unrotated k
  StridedView<float, 3> d_v;  ///< [num_kv_tokens, num_kv_heads, v_head_dim]
  /// Shaped as extras.bias. A stride of 0 sums over what it repeats; the call then runs on one thread.
  StridedView<float, 3> d_bias;
  std::span<float> d_alibi_slopes;  ///< [num_q_heads] or empty
  std::span<float> d_sink_logits;   ///< [num_q_heads] or empty
};

/// Gradients of a loss whose derivatives by out and lse are given.
///
///   P = e^(s - lse), 0 where not visible;  dS = P * (dO . v - rowsum(dO * O) + d_lse)
///   d_v = sum P dO, d_k = scale sum dS q, d_q = scale sum dS k; sums over the query heads of a key head
///   d_bias = dS, d_alibi = sum dS (k_pos - q_pos), d_sink = sum e^(sink - lse) (d_lse - rowsum(dO * O))
///
/// Softcap, dropout and the rotation are passed through; keys and values are never repeated to the query
/// heads. Entries that no visible pair reaches are exactly 0, also beside NaN and infinity in tokens that are
/// not seen. Equal bits for every thread count: each key block is one chain over the blocks of rows, each
/// block of rows takes its key blocks in ascending order.
/// Errors (kInvalidArgument): as attention_forward, shapes of the gradients, a stride of 0 in d_q, d_k or
/// d_v, d_bias without a bias; rope.position_policy = in_cache (the oracle has it). Nothing is written on
/// error. Cost: 6 qk_head_dim + 4 v_head_dim floating point operations a visible pair and head, in five
/// products. Memory: packed q and dO and the sum of d_q, for as many key heads at a time as q + k + v would
/// take; at least one. Source: FlashAttention-2, arXiv:2307.08691, Algorithm 2.
[[nodiscard]] Result<void> attention_backward(const AttentionSpec& spec, const AttentionPlan& plan,
                                              const AttentionUpstream& upstream, const QueryBatch& queries,
                                              const ContiguousKv& kv, const AttentionExtras& extras,
                                              const AttentionGradients& gradients, AttentionContext& context);

}  // namespace sightline
