// The keys of a call cut into stretches in which every range rule is one interval: neighbouring valid keys
// with rising positions and equal segment, span and flags, as far as the mask looks at these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/spec/coords.h"
#include "sightline/spec/mask.h"
#include "sightline/visibility/visibility_map.h"

namespace sightline {

/// Keys begin..end-1. Fields that the mask does not look at hold those of the first key.
struct KeyStretch {
  std::int64_t begin = 0, end = 0;
  std::int64_t first_pos = 0;
  std::int64_t segment_start = 0;
  std::int32_t segment = 0;
  std::int32_t span = 0;
  std::uint32_t flags = 0;
  std::int32_t tree_node = -1;  // -1: committed; a node of the draft tree is a stretch of its own
  bool dense = true;            // pos = first_pos + (index - begin)
};

/// Largest |pos| and |segment_start| for which differences and sums with a rule's n stay within int64.
inline constexpr std::int64_t kMaxPosition = kMaxMaskTokens;

class KeyStretches {
 public:
  /// One pass over the keys. `kv_row_idx` may be empty (row i is i); tables are valid.
  /// Errors (kInvalidArgument): a position or segment start beyond kMaxPosition.
  [[nodiscard]] static Result<KeyStretches> build(const MaskSpec& mask, const MaskTables& tables,
                                                  std::span<const TokenCoord> kv,
                                                  std::span<const std::int64_t> kv_row_idx);

  /// Ascending and disjoint; keys in none of them are padding.
  [[nodiscard]] std::span<const KeyStretch> all() const { return stretches_; }
  /// Those of one segment, ascending. The mask implies `segment`, else the order is that of all().
  [[nodiscard]] std::span<const KeyStretch> of_segment(std::int32_t segment) const;
  /// Index of the first key of the stretch whose position is `pos` or later; stretch.end if there is none.
  [[nodiscard]] std::int64_t first_at_or_after(const KeyStretch& stretch, std::int64_t pos) const;

 private:
  std::span<const TokenCoord> kv_;
  std::vector<KeyStretch> stretches_;
  std::vector<KeyStretch> by_segment_;  // stable order by segment; empty when it equals stretches_
};

}  // namespace sightline
