// Attention in float64, forward and backward, written straight from the spec with plain loops: the
// oracle. It is slow on purpose and shares nothing with the kernels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/reference/deviation.h"
#include "sightline/spec/attention_spec.h"
#include "sightline/spec/coords.h"

namespace sightline::reference {

/// One sequence of one call; callers loop over sequences. Views and spans must outlive the call.
struct AttentionInputs {
  StridedView<const double, 3> q;             ///< [q_len, num_q_heads, qk_head_dim], before rotation
  StridedView<const double, 3> k;             ///< [kv_len, num_kv_heads, qk_head_dim], before rotation
  StridedView<const double, 3> v;             ///< [kv_len, num_kv_heads, v_head_dim]
  std::span<const TokenCoord> q_coords;       ///< [q_len]
  std::span<const TokenCoord> kv_coords;      ///< [kv_len]; row j is row_idx j
  std::span<const std::int64_t> q_rope_pos;   ///< [q_len]; empty: pos
  std::span<const std::int64_t> kv_rope_pos;  ///< [kv_len]; empty: pos
  /// Tokens the sequence is set up for; used by length-dependent frequencies under kFixedAtStart.
  /// Under kCurrentLength the length is 1 + the largest rope_pos of a valid token of the call.
  std::int64_t rope_length = 0;
  /// [kv_len] or empty: the rope length under which each key was rotated, where that was another one (keys
  /// that went stale in a cache).
  std::span<const std::int64_t> kv_rope_length;
  /// [num_q_heads, q_len, kv_len], strides may be 0; `data` null: no bias. Minus infinity is invisible.
  StridedView<const double, 3> bias;
  MaskTables tables;
  /// Rows of k that were there before the call; only deviations of a cache look at it.
  std::int64_t num_cached = 0;
  /// Rows of k at which calls began to append, ascending; empty: those before the call came in one. Only
  /// deviations of a cache look at it.
  std::span<const std::int64_t> append_begins;
};

/// What to hand out besides out and lse.
struct Keep {
  bool weights = false;
  bool scores = false;
  /// [q_len, num_q_heads] or empty: rows and heads that are not 0 are computed, the others stay 0. Not with a
  /// deviating out_layout, which mixes them.
  std::span<const std::uint8_t> only;
};

struct AttentionOutputs {
  std::vector<double> out;  ///< [q_len, num_q_heads, v_head_dim]
  std::vector<double> lse;  ///< [q_len, num_q_heads], natural logarithm, with the sink
  // [num_q_heads, q_len, kv_len] each, when asked for.
  std::vector<double> weights;          ///< before dropout; 0 where not visible
  std::vector<double> dropped_weights;  ///< as they multiply v
  std::vector<double> scores;           ///< logits with bias and ALiBi; minus infinity where not visible
};

/// out[i, h] = sum_j w[h, i, j] v[j, h / group_size], w = softmax over the visible j (and the sink) of
/// bias + alibi + softcap(scale * rotated q . rotated k).
///
/// A row that sees no key, or only scores of minus infinity: out 0, lse its sink logit or minus infinity.
/// NaN or infinity in an unseen key changes nothing; NaN or a score of plus infinity in a seen one gives
/// NaN in out and lse. Dropout touches neither the lse nor the normaliser; its counter holds the query's
/// segment and both positions.
/// Errors (kInvalidArgument): an invalid spec, shapes that do not agree (`keep.only` and `num_cached` too),
/// missing tables, coordinates of valid tokens beyond 2^53; a deviation that these arrays cannot be misread
/// by. Cost: O(q_len * kv_len) visibility tests and num_q_heads times as many dot products. Deterministic;
/// keys are added in the order of their rows.
[[nodiscard]] Result<AttentionOutputs> attention_forward(const AttentionSpec& spec,
                                                         const AttentionInputs& inputs, Keep keep = {},
                                                         const Deviation& deviation = {});

struct AttentionUpstream {
  StridedView<const double, 3> d_out;  ///< [q_len, num_q_heads, v_head_dim]
  StridedView<const double, 2> d_lse;  ///< [q_len, num_q_heads]; `data` null: 0
};

struct AttentionGradients {
  std::vector<double> d_q;  ///< [q_len, num_q_heads, qk_head_dim], of the unrotated q
  std::vector<double> d_k;  ///< [kv_len, num_kv_heads, qk_head_dim], of the unrotated k
  std::vector<double> d_v;  ///< [kv_len, num_kv_heads, v_head_dim]
  /// Of the bias, entry [h, i, j] at offset h s0 + i s1 + j s2 with the bias's own strides, so that a
  /// broadcast bias gets the sum. Empty without a bias.
  std::vector<double> d_bias;
  std::vector<double> d_alibi_slopes;  ///< [num_q_heads], empty without ALiBi
  std::vector<double> d_sink_logits;   ///< [num_q_heads], empty without sinks
};

/// The derivative of attention_forward: dS = P * (dP - rowsum(dO * O) + d_lse), exactly 0 at invisible
/// pairs; d_sink = P_sink * (d_lse - rowsum(dO * O)). A row that sees no key passes no gradient on but that
/// of its lse, to its sink logit.
/// Errors and cost as attention_forward.
[[nodiscard]] Result<AttentionGradients> attention_backward(const AttentionSpec& spec,
                                                            const AttentionInputs& inputs,
                                                            const AttentionUpstream& upstream,
                                                            const Deviation& deviation = {});

/// Merges two partial results over disjoint keys: out = sum_i e^(lse_i - lse) out_i, lse = ln sum_i e^lse_i.
///   out [rows, v_head_dim], lse [rows], dense; a part that saw nothing (lse minus infinity) adds nothing.
/// The sink may be in at most one part. Requires both parts of one shape.
[[nodiscard]] AttentionOutputs merge_by_lse(const AttentionOutputs& a, const AttentionOutputs& b);

}  // namespace sightline::reference
