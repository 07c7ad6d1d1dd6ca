// How a panel of 32 outputs of a quantised linear layer lies in memory: every block of 32 inputs in the order
// the integer dot products eat it, no larger than in the file (K types: 4 bytes a block more).
//
// A panel is a sequence of records, one for each block of the type:
//   head   d [32] F16, then, where the kind has minima, m [32] F16
//   then for each 32 inputs:
//     q      8 bits: [8 groups][32 columns][4 inputs]
//            fewer:  nibbles [4 groups][32][4], group g low and group g + 4 high in one byte; then
//                    5th bits [32][4], bit g of a byte for group g, or
//                    pairs of bits [2][32][4], pair g % 4 of byte g / 4 for group g
//     scale  [stretches][32] int8 and min [32] uint8, where the kind has them
// Every part is a multiple of 64 bytes or 32 bytes in pairs, so blocks start on cache lines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sightline/base/quant_block.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline::kernels {

inline constexpr int kQuantInputs = 32;  ///< inputs of one integer dot product and of one activation scale
inline constexpr int kQuantGroups = 8;   ///< of 4 inputs
inline constexpr int kGroupBytes = kPanelColumns * 4;  ///< of one group at 8 bits

struct QuantPanelLayout {
  int head_bytes = 0;
  int high_offset = 0;    ///< of bits above the fourth, in a block of 32 inputs
  int scale_offset = 0;   ///< of scales
  int min_offset = 0;     ///< of minima
  int block_bytes = 0;    ///< of 32 inputs
  int record_blocks = 1;  ///< blocks of 32 inputs under one head
  int record_bytes = 0;
};

constexpr QuantPanelLayout quant_panel_layout(QuantKind kind) {
  const QuantTraits traits = quant_traits(kind);
  QuantPanelLayout out;
  out.head_bytes = kPanelColumns * 2 * (traits.has_min ? 2 : 1);
  out.high_offset = kGroupBytes * (traits.bits == 8 ? 8 : 4);
  out.scale_offset = out.high_offset + (traits.bits < 8 ? (traits.bits - 4) * kGroupBytes : 0);
  const int stretches = kQuantInputs / traits.stretch_values;
  out.min_offset = out.scale_offset + (traits.has_scales ? stretches * kPanelColumns : 0);
  out.block_bytes = out.min_offset + (traits.has_scales && traits.has_min ? kPanelColumns : 0);
  out.record_blocks = traits.block_values / kQuantInputs;
  out.record_bytes = out.head_bytes + out.record_blocks * out.block_bytes;
  return out;
}

/// Bytes of one panel. `in_dim` is a multiple of the kind's block.
[[nodiscard]] constexpr std::int64_t quant_panel_bytes(QuantKind kind, std::int64_t in_dim) {
  return in_dim / quant_traits(kind).block_values * quant_panel_layout(kind).record_bytes;
}

/// Writes block `block_idx` of the row that is column `column` of a panel; the panel's bytes were 0.
void put_quant_block(QuantKind kind, const QuantBlock& block, std::int64_t block_idx, int column,
                     std::uint8_t* panel);
/// Reads it back.
void get_quant_block(QuantKind kind, const std::uint8_t* panel, std::int64_t block_idx, int column,
                     QuantBlock& block);

}  // namespace sightline::kernels
