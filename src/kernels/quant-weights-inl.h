// Where the integer product reads its weights: a packed panel, unpacked on the way, or a stretch of it that
// was unpacked once for many rows. Both hand out the same bytes and the same rounded scales.
#pragma once

#include "kernels/dot-inl.h"
#include "kernels/unroll-inl.h"
#include "sightline/kernels/quant_panel.h"

namespace sightline::kernels::SIGHTLINE_ISA {

HWY_INLINE Vec load_f16(const std::uint8_t* p) {
  const hn::Rebind<hwy::float16_t, Tag> halves;
  return hn::PromoteTo(Tag(), hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(p)));
}

template <typename Byte>
HWY_INLINE Vec load_bytes(const std::uint8_t* p) {
  const hn::Rebind<Byte, IntTag> bytes;
  const auto v = hn::LoadU(bytes, reinterpret_cast<const Byte*>(p));
  return hn::ConvertTo(Tag(), hn::PromoteTo(IntTag(), v));
}

template <QuantKind kKind>
class PackedWeights {
  static constexpr QuantTraits kTraits = quant_traits(kKind);
  static constexpr QuantPanelLayout kLayout = quant_panel_layout(kKind);

 public:
  static constexpr int kStretches = kQuantInputs / kTraits.stretch_values;
  static constexpr bool kHasZero = kTraits.zero != 0;
  static constexpr bool kHasMin = kTraits.has_min;
  static constexpr int kBlockBytes = kLayout.block_bytes;

  explicit PackedWeights(const std::uint8_t* panel) : panel_(panel) {}

  class Block {
   public:
    Block(const std::uint8_t* head, const std::uint8_t* body) : head_(head), body_(body) {}

    /// Group kGroup of kLanes columns, four bytes a lane.
    template <int kGroup>
    HWY_INLINE IntVec group(int column) const {
      if constexpr (kTraits.bits == 8) {
        return load_int(body_ + kGroup * kGroupBytes + column * 4);
      } else {
        IntVec low = load_int(body_ + kGroup % 4 * kGroupBytes + column * 4);
        if constexpr (kGroup >= 4) low = hn::ShiftRight<4>(low);
        low = hn::And(low, hn::Set(IntTag(), 0x0f0f0f0f));
        if constexpr (kTraits.bits == 5) {
          return hn::Or(
              low, high_bits<4 - kGroup>(load_int(body_ + kLayout.high_offset + column * 4), 0x10101010));
        } else if constexpr (kTraits.bits == 6) {
          const std::uint8_t* const from =
              body_ + kLayout.high_offset + kGroup / 4 * kGroupBytes + column * 4;
          return hn::Or(low, high_bits<4 - kGroup % 4 * 2>(load_int(from), 0x30303030));
        } else {
          return low;
        }
      }
    }
    HWY_INLINE Vec scale(int stretch, int column) const {
      const Vec d = load_f16(head_ + column * 2);
      if constexpr (!kTraits.has_scales) return d;
      return hn::Mul(
          d, load_bytes<std::int8_t>(body_ + kLayout.scale_offset + stretch * kPanelColumns + column));
    }
    HWY_INLINE Vec min(int column) const {
      const Vec m = load_f16(head_ + (kPanelColumns + column) * 2);
      if constexpr (!kTraits.has_scales) return m;
      return hn::Neg(hn::Mul(m, load_bytes<std::uint8_t>(body_ + kLayout.min_offset + column)));
    }
    [[nodiscard]] const std::uint8_t* bytes() const { return body_; }
    HWY_INLINE void prefetch(int bytes_ahead) const {
      for (int at = 0; at < kBlockBytes; at += 64) __builtin_prefetch(body_ + bytes_ahead + at, 0, 3);
    }

   private:
    // The bits of `v` moved left by kShift (right, where negative), those of `mask`.
    template <int kShift>
    static HWY_INLINE IntVec high_bits(IntVec v, int mask) {
      const hn::RebindToUnsigned<IntTag> words;
      auto bits = hn::BitCast(words, v);
      if constexpr (kShift > 0) bits = hn::ShiftLeft<kShift>(bits);
      if constexpr (kShift < 0) bits = hn::ShiftRight<-kShift>(bits);
      return hn::And(hn::BitCast(IntTag(), bits), hn::Set(IntTag(), mask));
    }
    const std::uint8_t* head_;
    const std::uint8_t* body_;
  };

  HWY_INLINE Block block(std::int64_t b) const {
    const std::uint8_t* const head = panel_ + b / kLayout.record_blocks * kLayout.record_bytes;
    return {head, head + kLayout.head_bytes + b % kLayout.record_blocks * kLayout.block_bytes};
  }

 private:
  const std::uint8_t* panel_;
};

/// Blocks of a panel at eight bits with f32 scales: small enough to stay in the first cache.
struct UnpackedBlocks {
  static constexpr int kBlocks = 8;
  alignas(64) std::uint8_t q[kBlocks][kQuantGroups][kGroupBytes];
  alignas(64) float scale[kBlocks][2][kPanelColumns];
  alignas(64) float min[kBlocks][kPanelColumns];
};

template <QuantKind kKind>
HWY_NOINLINE void unpack_blocks(const PackedWeights<kKind>& weights, std::int64_t first, std::int64_t count,
                                UnpackedBlocks& out) {
  using Weights = PackedWeights<kKind>;
  for (std::int64_t b = 0; b < count; ++b) {
    const auto block = weights.block(first + b);
    for (int column = 0; column < kPanelColumns; column += kLanes) {
      unrolled<0, kQuantGroups>([&](auto group) SIGHTLINE_INLINE_LAMBDA {
        hn::StoreU(block.template group<decltype(group)::value>(column), IntTag(),
                   reinterpret_cast<std::int32_t*>(&out.q[b][decltype(group)::value][column * 4]));
      });
      for (int s = 0; s < Weights::kStretches; ++s) {
        store(block.scale(s, column), &out.scale[b][s][column]);
      }
      if constexpr (Weights::kHasMin) store(block.min(column), &out.min[b][column]);
    }
  }
}

template <int kStretchesOf, bool kZero, bool kMin>
class UnpackedWeights {
 public:
  static constexpr int kStretches = kStretchesOf;
  static constexpr bool kHasZero = kZero;
  static constexpr bool kHasMin = kMin;

  explicit UnpackedWeights(const UnpackedBlocks& blocks) : blocks_(&blocks) {}

  class Block {
   public:
    Block(const UnpackedBlocks* blocks, std::int64_t b) : blocks_(blocks), b_(b) {}
    template <int kGroup>
    HWY_INLINE IntVec group(int column) const {
      return load_int(&blocks_->q[b_][kGroup][column * 4]);
    }
    HWY_INLINE Vec scale(int stretch, int column) const { return load(&blocks_->scale[b_][stretch][column]); }
    HWY_INLINE Vec min(int column) const { return load(&blocks_->min[b_][column]); }
    HWY_INLINE void prefetch(int) const {}

   private:
    const UnpackedBlocks* blocks_;
    std::int64_t b_;
  };

  HWY_INLINE Block block(std::int64_t b) const { return {blocks_, b}; }

 private:
  const UnpackedBlocks* blocks_;
};

}  // namespace sightline::kernels::SIGHTLINE_ISA
