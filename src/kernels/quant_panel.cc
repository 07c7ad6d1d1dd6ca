#include "sightline/kernels/quant_panel.h"

#include <cstring>

namespace sightline::kernels {

namespace {

struct Place {
  int at;     // byte in the block of 32 inputs
  int shift;  // of its bits there
};

// Of the low four bits (all eight, where q has eight) of input k, 0 <= k < 32.
constexpr Place low_place(const QuantTraits& traits, int k, int column) {
  const int group = k / 4;
  const int byte = column * 4 + k % 4;
  if (traits.bits == 8) return {group * kGroupBytes + byte, 0};
  return {group % 4 * kGroupBytes + byte, group / 4 * 4};
}

// Of the bits above the fourth.
constexpr Place high_place(const QuantTraits& traits, const QuantPanelLayout& layout, int k, int column) {
  const int group = k / 4;
  const int byte = column * 4 + k % 4;
  if (traits.bits == 5) return {layout.high_offset + byte, group};
  return {layout.high_offset + group / 4 * kGroupBytes + byte, group % 4 * 2};
}

}  // namespace

void put_quant_block(QuantKind kind, const QuantBlock& block, std::int64_t block_idx, int column,
                     std::uint8_t* panel) {
  const QuantTraits traits = quant_traits(kind);
  const QuantPanelLayout layout = quant_panel_layout(kind);
  std::uint8_t* const head = panel + block_idx * layout.record_bytes;
  std::memcpy(head + column * 2, &block.d, 2);
  if (traits.has_min) std::memcpy(head + (kPanelColumns + column) * 2, &block.m, 2);
  const int stretches = kQuantInputs / traits.stretch_values;
  for (int b = 0; b < layout.record_blocks; ++b) {
    std::uint8_t* const to = head + layout.head_bytes + b * layout.block_bytes;
    for (int k = 0; k < kQuantInputs; ++k) {
      const int q = block.q[b * kQuantInputs + k];
      const Place low = low_place(traits, k, column);
      if (traits.bits == 8) {
        to[low.at] = static_cast<std::uint8_t>(q);
        continue;
      }
      to[low.at] = static_cast<std::uint8_t>(to[low.at] | (q & 15) << low.shift);
      if (traits.bits == 4) continue;
      const Place high = high_place(traits, layout, k, column);
      to[high.at] = static_cast<std::uint8_t>(to[high.at] | (q >> 4) << high.shift);
    }
    if (!traits.has_scales) continue;
    for (int s = 0; s < stretches; ++s) {
      std::memcpy(to + layout.scale_offset + s * kPanelColumns + column, &block.scale[b * stretches + s], 1);
    }
    if (traits.has_min) to[layout.min_offset + column] = block.min[b];
  }
}

void get_quant_block(QuantKind kind, const std::uint8_t* panel, std::int64_t block_idx, int column,
                     QuantBlock& block) {
  const QuantTraits traits = quant_traits(kind);
  const QuantPanelLayout layout = quant_panel_layout(kind);
  const std::uint8_t* const head = panel + block_idx * layout.record_bytes;
  std::memcpy(&block.d, head + column * 2, 2);
  if (traits.has_min) std::memcpy(&block.m, head + (kPanelColumns + column) * 2, 2);
  const int stretches = kQuantInputs / traits.stretch_values;
  for (int b = 0; b < layout.record_blocks; ++b) {
    const std::uint8_t* const from = head + layout.head_bytes + b * layout.block_bytes;
    for (int k = 0; k < kQuantInputs; ++k) {
      const Place low = low_place(traits, k, column);
      int q = from[low.at];
      if (traits.bits < 8) q = (q >> low.shift) & 15;
      if (traits.bits == 5 || traits.bits == 6) {
        const Place high = high_place(traits, layout, k, column);
        q |= ((from[high.at] >> high.shift) & (traits.bits == 5 ? 1 : 3)) << 4;
      }
      block.q[b * kQuantInputs + k] = static_cast<std::uint8_t>(q);
    }
    if (!traits.has_scales) continue;
    for (int s = 0; s < stretches; ++s) {
      std::memcpy(&block.scale[b * stretches + s], from + layout.scale_offset + s * kPanelColumns + column,
                  1);
    }
    if (traits.has_min) block.min[b] = from[layout.min_offset + column];
  }
}

}  // namespace sightline::kernels
