// The linear micro-kernel of quantised weights: rows x 32 columns, integer dot products of 32 inputs, one
// float chain per output over blocks ascending. Few rows read the packed panel; more of them share a stretch
// of it that is unpacked once.
#pragma once

#include "kernels/quant-weights-inl.h"

namespace sightline::kernels::SIGHTLINE_ISA {

// Rows at a time: rows x 2 integer sums and the operands stay in registers.
inline constexpr int kMaxQuantRows = HWY_TARGET <= HWY_AVX3 ? kQuantRows : 4;
// Rows that read the packed panel directly.
inline constexpr int kDirectRows = 4;
static_assert(kDirectRows <= kMaxQuantRows);
inline constexpr int kPrefetchBytes = 4096;

HWY_INLINE void add_product(Vec a, Vec b, float* to) { store(hn::MulAdd(a, b, load(to)), to); }

template <class Weights, int kRows>
HWY_INLINE void quant_tile(const Weights& weights, int column, const ActivationBlock* x, std::int64_t x_rows,
                           std::int64_t num_blocks, float* y, Prefetcher& ahead) {
  constexpr int kVecs = 2;
  constexpr int kStretchGroups = kQuantGroups / Weights::kStretches;
  for (std::int64_t b = 0; b < num_blocks; ++b, x += x_rows) {
    const auto block = weights.block(b);
    if (column == 0) {
      block.prefetch(kPrefetchBytes);
      ahead.step();
    }
    unrolled<0, Weights::kStretches>([&](auto stretch) SIGHTLINE_INLINE_LAMBDA {
      constexpr int kStretch = decltype(stretch)::value;
      IntVec sum[kRows][kVecs];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) {
          sum[r][v] = Weights::kHasZero ? hn::Set(IntTag(), x[r].start[kStretch]) : hn::Zero(IntTag());
        }
      }
      unrolled<0, kStretchGroups>([&](auto step) SIGHTLINE_INLINE_LAMBDA {
        // Groups that share nibbles follow each other.
        constexpr int kStep = decltype(step)::value;
        constexpr int kGroup =
            Weights::kStretches == 1 ? kStep % 2 * 4 + kStep / 2 : kStretch * kStretchGroups + kStep;
        WeightBytes w[kVecs];
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) {
          w[v] = weight_bytes(block.template group<kGroup>(column + v * kLanes));
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const ActivationBytes a = activation_bytes(x[r].q + kGroup * 4);
#pragma GCC unroll 2
          for (int v = 0; v < kVecs; ++v) sum[r][v] = dot4(sum[r][v], w[v], a);
        }
      });
      Vec scale[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) scale[v] = block.scale(kStretch, column + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec d = broadcast(x[r].d);
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) {
          add_product(hn::ConvertTo(Tag(), sum[r][v]), hn::Mul(scale[v], d),
                      y + r * kPanelColumns + column + v * kLanes);
        }
      }
    });
    if constexpr (Weights::kHasMin) {
      Vec min[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) min[v] = block.min(column + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec d_sum = broadcast(x[r].d_sum);
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) {
          add_product(min[v], d_sum, y + r * kPanelColumns + column + v * kLanes);
        }
      }
    }
  }
}

template <class Weights, int kRows>
HWY_NOINLINE void quant_columns(const Weights& weights, const ActivationBlock* x, std::int64_t x_rows,
                                std::int64_t num_blocks, float* y, Prefetcher& ahead) {
  for (int column = 0; column < kPanelColumns; column += 2 * kLanes) {
    quant_tile<Weights, kRows>(weights, column, x, x_rows, num_blocks, y, ahead);
  }
}

// All rows of one tile of activations, at most kMost at a time.
template <int kMost, class Weights>
HWY_INLINE void quant_rows(const Weights& weights, const ActivationBlock* x, std::int64_t x_rows,
                           std::int64_t num_blocks, float* y, Prefetcher& ahead) {
  for (std::int64_t row = 0; row < x_rows;) {
    const std::int64_t left = x_rows - row;
    row += with_row_count<kMost, 8, 7, 6, 5, 4, 3, 2, 1>(left, [&](auto count) SIGHTLINE_INLINE_LAMBDA {
      quant_columns<Weights, decltype(count)::value>(weights, x + row, x_rows, num_blocks,
                                                     y + row * kPanelColumns, ahead);
    });
  }
}

template <QuantKind kKind>
HWY_NOINLINE void linear_quant_as(const LinearQuantArgs& args) {
  using Packed = PackedWeights<kKind>;
  const Packed packed(args.panel);
  const auto num_floats = static_cast<std::size_t>(args.num_rows * kPanelColumns);
  __builtin_memset(args.y, 0, num_floats * sizeof(float));
  if (args.num_rows <= kDirectRows) {
    Prefetcher none;  // the blocks themselves look ahead
    quant_rows<kDirectRows>(packed, args.x, args.num_rows, args.num_blocks, args.y, none);
    return;
  }
  UnpackedBlocks blocks;
  const UnpackedWeights<Packed::kStretches, Packed::kHasZero, Packed::kHasMin> unpacked(blocks);
  for (std::int64_t b = 0; b < args.num_blocks; b += UnpackedBlocks::kBlocks) {
    const std::int64_t left = args.num_blocks - b;
    const std::int64_t count = left < UnpackedBlocks::kBlocks ? left : UnpackedBlocks::kBlocks;
    unpack_blocks(packed, b, count, blocks);
    constexpr std::int64_t kBytes = Packed::kBlockBytes * UnpackedBlocks::kBlocks;
    const std::uint8_t* const next = packed.block(b).bytes() + kBytes;
    Prefetcher ahead(next, kBytes, (args.num_rows + kMaxQuantRows - 1) / kMaxQuantRows * count);
    for (std::int64_t row = 0; row < args.num_rows; row += kQuantRows) {
      const std::int64_t rows = args.num_rows - row < kQuantRows ? args.num_rows - row : kQuantRows;
      const ActivationBlock* const x = args.x + row * args.num_blocks + b * rows;
      quant_rows<kMaxQuantRows>(unpacked, x, rows, count, args.y + row * kPanelColumns, ahead);
    }
  }
}

static void linear_quant(const LinearQuantArgs& args) {
  switch (args.kind) {
    case QuantKind::kQ8_0:
      return linear_quant_as<QuantKind::kQ8_0>(args);
    case QuantKind::kQ4_0:
      return linear_quant_as<QuantKind::kQ4_0>(args);
    case QuantKind::kQ4_1:
      return linear_quant_as<QuantKind::kQ4_1>(args);
    case QuantKind::kQ4_K:
      return linear_quant_as<QuantKind::kQ4_K>(args);
    case QuantKind::kQ5_K:
      return linear_quant_as<QuantKind::kQ5_K>(args);
    case QuantKind::kQ6_K:
      return linear_quant_as<QuantKind::kQ6_K>(args);
  }
}

}  // namespace sightline::kernels::SIGHTLINE_ISA
