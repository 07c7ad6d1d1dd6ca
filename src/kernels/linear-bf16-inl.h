// The linear micro-kernel of bf16 weights: rows x 32 columns, one chain per output over pairs of inputs.
#pragma once

#include "kernels/dot-inl.h"
#include "kernels/unroll-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

#if defined(__AVX512BF16__)
using Bf16Input = std::uint32_t;  // a pair
inline constexpr int kInputsPerPair = 1;

static void pack_bf16_row(const float* x, std::int64_t num_k, void* pairs) {
  auto* to = static_cast<std::uint16_t*>(pairs);
  std::int64_t k = 0;
  for (; k + 16 <= num_k; k += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + k),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(x + k))));
  }
  if (k == num_k) return;
  const auto left = static_cast<unsigned>(num_k - k);
  const __mmask16 present = static_cast<__mmask16>((1U << left) - 1U);
  const __mmask16 written = static_cast<__mmask16>((1U << ((left + 1U) / 2U * 2U)) - 1U);
  _mm256_mask_storeu_epi16(
      to + k, written, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(present, x + k))));
}

template <int kVecs>
HWY_INLINE void bf16_step(Vec (&acc)[kVecs], const IntVec (&w)[kVecs], const Bf16Input* x) {
  const IntVec a = broadcast_word(x);
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) acc[v] = dot2(acc[v], w[v], a);
}
#else
using Bf16Input = float;
inline constexpr int kInputsPerPair = 2;

static void pack_bf16_row(const float* x, std::int64_t num_k, void* pairs) {
  auto* to = static_cast<float*>(pairs);
  __builtin_memcpy(to, x, static_cast<std::size_t>(num_k) * sizeof(float));
  if (num_k % 2 != 0) to[num_k] = 0.0F;
}

template <int kVecs>
HWY_INLINE void bf16_step(Vec (&acc)[kVecs], const IntVec (&w)[kVecs], const Bf16Input* x) {
  const Vec first = broadcast(x[0]);
  const Vec second = broadcast(x[1]);
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    acc[v] = hn::MulAdd(first, hn::BitCast(Tag(), hn::ShiftLeft<16>(w[v])), acc[v]);
    const IntVec high = hn::And(w[v], hn::Set(IntTag(), static_cast<std::int32_t>(0xffff0000U)));
    acc[v] = hn::MulAdd(second, hn::BitCast(Tag(), high), acc[v]);
  }
}
#endif

inline constexpr std::int64_t kPrefetchPairs = 16;

template <int kRows, int kVecs>
HWY_INLINE void bf16_block(const Bf16Input* x, std::ptrdiff_t x_stride, const std::uint16_t* panel,
                           std::int64_t num_pairs, float* y, bool accumulate, Prefetcher& ahead) {
  Vec acc[kRows][kVecs];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = accumulate ? load(y + r * kPanelColumns + v * kLanes) : zero();
    }
  }
  constexpr int kBases = (kRows + 2) / 3;
  const Bf16Input* base[kBases];
#pragma GCC unroll 4
  for (int b = 0; b < kBases; ++b) base[b] = x + 3 * b * x_stride;
  for (std::int64_t begin = 0; begin < num_pairs; begin += kPrefetchPairs) {
    const std::int64_t end = begin + kPrefetchPairs < num_pairs ? begin + kPrefetchPairs : num_pairs;
    ahead.step();
#pragma GCC unroll 2
    for (std::int64_t k = begin; k < end; ++k) {
      IntVec w[kVecs];
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) w[v] = load_int(panel + (k * kPanelColumns + v * kLanes) * 2);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        bf16_step<kVecs>(acc[r], w, base[r / 3] + k * kInputsPerPair + (r % 3) * x_stride);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) store(acc[r][v], y + r * kPanelColumns + v * kLanes);
  }
}

template <int kRows>
HWY_NOINLINE void bf16_columns(const LinearBf16Args& args, std::int64_t row, Prefetcher& ahead) {
  const std::ptrdiff_t stride = args.x_stride * kInputsPerPair;
  const Bf16Input* const x = static_cast<const Bf16Input*>(args.x) + row * stride;
  for (int column = 0; column < kPanelColumns; column += 2 * kLanes) {
    bf16_block<kRows, 2>(x, stride, args.panel + column * 2, args.num_pairs,
                         args.y + row * kPanelColumns + column, args.accumulate, ahead);
  }
}

static void linear_bf16(const LinearBf16Args& args) {
  const std::int64_t num_groups = (args.num_rows + kMaxRows - 1) / kMaxRows;
  const std::int64_t steps = (args.num_pairs + kPrefetchPairs - 1) / kPrefetchPairs;
  Prefetcher ahead;
  if (args.prefetch_bytes > 0) ahead = Prefetcher(args.prefetch, args.prefetch_bytes, num_groups * steps);
  std::int64_t row = 0;
  while (row < args.num_rows) {
    const std::int64_t left = args.num_rows - row;
    row += with_row_count<kMaxRows, 12, 8, 4, 2, 1>(left, [&](auto count) SIGHTLINE_INLINE_LAMBDA {
      bf16_columns<decltype(count)::value>(args, row, ahead);
    });
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
