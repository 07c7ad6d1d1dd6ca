// A quantised linear layer to test: random blocks of a kind, as values and packed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/ops/packed_linear.h"
#include "support/normals.h"

namespace sightline::test {

inline const char* name_of(QuantKind kind) {
  constexpr const char* kNames[] = {"Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"};
  return kNames[static_cast<int>(kind)];
}

/// A matrix of random blocks, and a random bias.
struct QuantLayer {
  QuantKind kind;
  std::int64_t out_dim, in_dim;
  std::vector<QuantBlock> blocks{};
  std::vector<float> bias{};

  QuantLayer(QuantKind kind_in, std::int64_t out_dim_in, std::int64_t in_dim_in, std::uint64_t seed = 5)
      : kind(kind_in), out_dim(out_dim_in), in_dim(in_dim_in) {
    const QuantTraits traits = quant_traits(kind);
    Rng rng(seed);
    const auto below = [&](int n) { return static_cast<int>(rng.next_u64() % static_cast<unsigned>(n)); };
    blocks.resize(static_cast<std::size_t>(out_dim * blocks_per_row()));
    for (QuantBlock& block : blocks) {
      std::memset(static_cast<void*>(&block), 0, sizeof(block));
      block.d = to_f16(static_cast<float>(rng.next_normal()) * 0.02F);
      if (traits.has_min) block.m = to_f16(static_cast<float>(rng.next_normal()) * 0.02F);
      for (int i = 0; i < traits.block_values; ++i) {
        block.q[i] = static_cast<std::uint8_t>(below(1 << traits.bits));
      }
      if (!traits.has_scales) continue;
      for (int s = 0; s < traits.block_values / traits.stretch_values; ++s) {
        block.scale[s] = static_cast<std::int8_t>(kind == QuantKind::kQ6_K ? below(255) - 127 : below(64));
        if (traits.has_min) block.min[s] = static_cast<std::uint8_t>(below(64));
      }
    }
    bias = normals(out_dim, 8);
  }
  std::int64_t blocks_per_row() const { return in_dim / quant_traits(kind).block_values; }
  const QuantBlock* row(std::int64_t n) const { return blocks.data() + n * blocks_per_row(); }
  std::vector<float> values(std::int64_t n) const {
    std::vector<float> out(static_cast<std::size_t>(in_dim));
    const int step = quant_traits(kind).block_values;
    for (std::int64_t b = 0; b < blocks_per_row(); ++b) {
      quant_values(kind, row(n)[b], out.data() + b * step);
    }
    return out;
  }
  PackedLinear pack() const {
    auto packed = PackedLinear::pack_quantised(
        kind, out_dim, in_dim, [&](std::int64_t begin, std::int64_t end, std::span<QuantBlock> out) {
          EXPECT_EQ(std::ssize(out), (end - begin) * blocks_per_row());
          std::copy(row(begin), row(end), out.begin());
          return Result<void>();
        });
    EXPECT_TRUE(packed) << packed.error().message;
    return std::move(*packed);
  }
};

}  // namespace sightline::test
