// Norms and activations on rows. Every row is computed alone, in a fixed order.
#pragma once

#include <cstdint>
#include <span>

#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline {

/// y = weight * x / sqrt(mean(x^2) + epsilon), per row; y may be x.
void rms_norm_forward(StridedView<const float, 2> x, std::span<const float> weight, float epsilon,
                      StridedView<float, 2> y, ThreadPool& pool);
/// y = weight * (x - mean) / sqrt(var + epsilon) + bias, per row, biased variance; bias may be empty; y may
/// be x.
void layer_norm_forward(StridedView<const float, 2> x, std::span<const float> weight,
                        std::span<const float> bias, float epsilon, StridedView<float, 2> y,
                        ThreadPool& pool);

enum class ActivationKind : std::uint8_t { kSilu, kGeluTanh, kGeluErf, kRelu };
/// y = act(x); y may be x. silu and both gelus of minus infinity are NaN (infinity times 0).
/// Source of gelu, kGeluErf exact and kGeluTanh its approximation: arXiv:1606.08415, section 2.
void activation_forward(ActivationKind kind, StridedView<const float, 2> x, StridedView<float, 2> y,
                        ThreadPool& pool, const kernels::KernelTable& table = kernels::active_table());
/// y = act(gate) * up; y may be gate or up.
void gated_activation_forward(ActivationKind kind, StridedView<const float, 2> gate,
                              StridedView<const float, 2> up, StridedView<float, 2> y, ThreadPool& pool,
                              const kernels::KernelTable& table = kernels::active_table());
/// x += scale * y.
void add_scaled(StridedView<float, 2> x, StridedView<const float, 2> y, float scale, ThreadPool& pool);

/// log-softmax of one row of logits in double, fixed order: out[i] = x[i] - log(sum exp(x)).
void log_softmax(std::span<const float> logits, std::span<double> out);

}  // namespace sightline
