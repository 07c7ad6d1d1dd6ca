// Gradients of a batch three ways: the engine, the float64 oracle and plain f32 code.
#pragma once

#include <functional>

#include "attention/batch.h"
#include "sightline/attention/attention_backward.h"

namespace sightline::test {

/// The gradient of a loss by out and lse.
struct Upstream {
  std::vector<float> d_out;  ///< [num_q, num_q_heads, v_head_dim]
  std::vector<float> d_lse;  ///< [num_q, num_q_heads], empty: 0
};
/// N(0, 1); 0 for the lse of queries whose lse is minus infinity.
Upstream random_upstream(const Batch& batch, std::uint64_t seed);

template <typename T>
struct GradientsOf {
  std::vector<T> d_q, d_k, d_v, d_bias, d_alibi_slopes, d_sink_logits;
};
using Gradients = GradientsOf<float>;

struct BackwardRun {
  Gradients gradients;
  AttentionStats stats;
  std::string error;  ///< empty: none
};
using ChangeArrays = std::function<void(AttentionUpstream&, AttentionGradients&)>;
/// Forward, then backward, on caller's arrays filled with NaN. `change`: what the call is given otherwise.
BackwardRun run_backward(const Batch& batch, const Upstream& upstream, const RunOptions& options = {},
                         const ChangeArrays& change = {});

/// Design 5.3 for gradients: errors of a row over the sum of the magnitudes that go into it, at most three
/// times those of the plain method plus the rounding of a number near the result.
::testing::AssertionResult within_gradient_rule(const Batch& batch, const Upstream& upstream,
                                                const Gradients& got);
::testing::AssertionResult same_bits(const Gradients& a, const Gradients& b);

}  // namespace sightline::test
