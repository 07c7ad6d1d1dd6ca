// A mask made ready to run on many queries: by interval algebra over stretches, or by words of bits over
// one key tile. Both give exactly what is_visible gives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/spec/mask.h"
#include "sightline/visibility/visibility_map.h"
#include "visibility/key_stretches.h"
#include "visibility/range_rules.h"

namespace sightline {

/// What build_visibility was given; the pieces outlive the program.
struct VisibilityInput {
  const MaskSpec& mask;
  const MaskTables& tables;
  std::span<const TokenCoord> q, kv;
  std::span<const std::int64_t> q_row_idx, kv_row_idx;  // empty: row i is i
  TileShape tile;

  [[nodiscard]] TokenRef q_ref(std::int64_t i) const { return ref(q, q_row_idx, i); }
  [[nodiscard]] TokenRef kv_ref(std::int64_t i) const { return ref(kv, kv_row_idx, i); }

 private:
  [[nodiscard]] static TokenRef ref(std::span<const TokenCoord> coords, std::span<const std::int64_t> row_idx,
                                    std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    return {coords[at], row_idx.empty() ? i : row_idx[at]};
  }
};

class MaskProgram {
 public:
  /// `stretches` are those of input.kv.
  MaskProgram(const VisibilityInput& input, const KeyStretches& stretches);

  /// Every leaf is a range rule.
  [[nodiscard]] bool has_ranges() const { return has_ranges_; }
  /// Appends what query `q` sees to `out`: ascending, disjoint, non-adjacent. Requires has_ranges().
  void append_ranges(std::int64_t q, std::vector<KeyRange>& out);
  /// What query `q` sees of key tile `kv_tile`.
  [[nodiscard]] BitRow bits(std::int64_t q, std::int64_t kv_tile);

 private:
  struct Step {
    MaskNode node;
    RangeRule rule = nullptr;  // leaves only; null: pair by pair
  };
  void run_stretch(const RuleContext& context, const KeyStretch& stretch);
  void intersect_top();
  void unite_top();
  void complement_top(const KeyStretch& stretch);
  [[nodiscard]] BitRow leaf_bits(const RuleContext& context, const Step& step, std::int64_t kv_tile) const;

  const VisibilityInput& input_;
  const KeyStretches& stretches_;
  bool has_ranges_ = true;
  bool one_segment_ = false;  // queries see their own segment only
  std::vector<Step> steps_;
  std::vector<std::size_t> tile_stretches_;  // first stretch that ends after the begin of each key tile
  // The evaluation stack: value i is intervals_[starts_[i] .. starts_[i + 1]) or to the end.
  std::vector<KeyRange> intervals_;
  std::vector<std::size_t> starts_;
  std::vector<KeyRange> scratch_;
  std::vector<BitRow> bit_stack_;
};

}  // namespace sightline
