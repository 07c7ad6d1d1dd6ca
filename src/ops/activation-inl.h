// Activations of one number, without branches, so that the compiler makes vectors of the loops over them.
// Every number is computed alone with the same operations, wherever it stands in a row.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "sightline/ops/elementwise.h"

namespace sightline {

/// e^x: 2^n * p(r) with n = round(x / ln 2), |r| <= ln(2)/2; within 2 ulp, overflow to infinity, gradual
/// underflow to 0, NaN stays NaN. Polynomial: Cephes expf (Moshier), degree 5 of (e^r - 1 - r) / r^2.
inline float exp_f32(float x) {
  constexpr float kRound = 0x1.8p23F;  // adding it leaves round(x) in the low bits
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Comparisons that a NaN fails, so that it passes through. e^89 overflows, e^-105 underflows.
  x = x > 89.0F ? 89.0F : x;
  x = x < -105.0F ? -105.0F : x;
  const float rounded = x * 1.44269504088896341F + kRound;
  const float n = rounded - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  // 2^n as two factors: n may be 129 or -152, which one exponent cannot hold.
  const auto n_bits = std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(kRound);
  const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(n_bits) >> 1);
  const float scale_a = std::bit_cast<float>((half + 127U) << 23);
  const float scale_b = std::bit_cast<float>((n_bits - half + 127U) << 23);
  return p * scale_a * scale_b;
}

/// x * sigmoid(x). Minus infinity gives NaN, as inf * 0 does in the formula.
inline float silu(float x) { return x / (1.0F + exp_f32(-x)); }

/// 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), written as x * sigmoid(2u), which does not
/// cancel for negative x. Source: arXiv:1606.08415, section 2.
inline float gelu_tanh(float x) {
  constexpr float kTwoSqrtTwoOverPi = 1.59576912160573071176F;
  const float u2 = kTwoSqrtTwoOverPi * (x + 0.044715F * x * x * x);
  return x / (1.0F + exp_f32(-u2));
}

/// x Phi(x) = 0.5 x erfc(-x / sqrt 2), which does not cancel for negative x. Scalar: few models use it.
inline float gelu_erf(float x) {
  constexpr float kSqrtHalf = 0.70710678118654752440F;
  return 0.5F * x * std::erfc(-x * kSqrtHalf);
}

/// max(x, 0); NaN stays NaN.
inline float relu(float x) { return x < 0.0F ? 0.0F : x; }

template <ActivationKind kKind>
float activate(float x) {
  if constexpr (kKind == ActivationKind::kSilu) return silu(x);
  if constexpr (kKind == ActivationKind::kGeluTanh) return gelu_tanh(x);
  if constexpr (kKind == ActivationKind::kGeluErf) return gelu_erf(x);
  if constexpr (kKind == ActivationKind::kRelu) return relu(x);
}

}  // namespace sightline
