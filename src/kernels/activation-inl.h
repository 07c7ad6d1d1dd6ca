// Activations of rows: silu and the tanh form of gelu, alone or times a second row (gated feed-forward).
// Every number takes the same operations wherever it stands; a tail is padded to a whole vector.
#pragma once

#include "kernels/vec-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

// e^x within 2 ulp: 2^n p(r), n = round(x / ln 2), |r| <= ln(2)/2. Overflow to infinity, gradual underflow
// to 0; NaN gives NaN. Polynomial: Cephes expf (Moshier).
HWY_INLINE Vec exp_full(Vec x) {
  // e^89 overflows and e^-105 underflows. A NaN may leave the clamp as a bound: r brings it back below.
  const Vec clamped = hn::Min(hn::Max(x, broadcast(-105.0F)), broadcast(89.0F));
  const IntVec n = nearest_int(hn::Mul(clamped, broadcast(1.44269504088896341F)));
  const Vec n_float = hn::ConvertTo(Tag(), n);
  Vec r = hn::NegMulAdd(n_float, broadcast(0.693359375F), clamped);
  r = hn::NegMulAdd(n_float, broadcast(-2.12194440e-4F), r);
  Vec p = broadcast(1.9875691500e-4F);
  p = hn::MulAdd(p, r, broadcast(1.3981999507e-3F));
  p = hn::MulAdd(p, r, broadcast(8.3334519073e-3F));
  p = hn::MulAdd(p, r, broadcast(4.1665795894e-2F));
  p = hn::MulAdd(p, r, broadcast(1.6666665459e-1F));
  p = hn::MulAdd(p, r, broadcast(5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), broadcast(1.0F));
  // 2^n as two factors: n reaches 128 and -151, which one exponent cannot hold.
  const IntVec bias = hn::Set(IntTag(), 127);
  const IntVec half = hn::ShiftRight<1>(n);
  const Vec scale_a = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Vec scale_b = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(hn::Sub(n, half), bias)));
  return hn::IfThenElse(hn::Eq(x, x), hn::Mul(hn::Mul(p, scale_a), scale_b), x);
}

template <ActivationArgs::Kind kKind>
HWY_INLINE Vec activate(Vec x) {
  Vec argument = x;
  if constexpr (kKind == ActivationArgs::Kind::kGeluTanh) {
    // 0.5 x (1 + tanh(u)) = x * sigmoid(2u), which does not cancel for negative x.
    const Vec cube = hn::Mul(hn::Mul(x, x), hn::Mul(x, broadcast(0.044715F)));
    argument = hn::Mul(broadcast(1.59576912160573071176F), hn::Add(x, cube));
  }
  return hn::Div(x, hn::Add(broadcast(1.0F), exp_full(hn::Neg(argument))));
}

template <ActivationArgs::Kind kKind>
HWY_INLINE void activate_row_as(const ActivationArgs& args) {
  std::int64_t i = 0;
  for (; i + kLanes <= args.size; i += kLanes) {
    Vec y = activate<kKind>(load(args.x + i));
    if (args.up != nullptr) y = hn::Mul(y, load(args.up + i));
    store(y, args.y + i);
  }
  if (i == args.size) return;
  const auto bytes = static_cast<std::size_t>(args.size - i) * sizeof(float);
  float tail[kLanes] = {};
  float up[kLanes] = {};
  __builtin_memcpy(tail, args.x + i, bytes);
  Vec y = activate<kKind>(load(tail));
  if (args.up != nullptr) {
    __builtin_memcpy(up, args.up + i, bytes);
    y = hn::Mul(y, load(up));
  }
  store(y, tail);
  __builtin_memcpy(args.y + i, tail, bytes);
}

static void activate_row(const ActivationArgs& args) {
  if (args.kind == ActivationArgs::Kind::kSilu) {
    activate_row_as<ActivationArgs::Kind::kSilu>(args);
  } else {
    activate_row_as<ActivationArgs::Kind::kGeluTanh>(args);
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
