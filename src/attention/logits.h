// Logits that are more than a scale, and dropout: what forward and backward do to the scores of one tile
// between the two products, row by row.
#pragma once

#include "attention/call.h"
#include "sightline/base/rng.h"

namespace sightline {

/// The scores of one item and tile.
struct TileScores {
  float* scores = nullptr;                      ///< [num_rows][128]
  std::uint64_t* words = nullptr;               ///< [num_rows][2]: visible keys
  float* bias = nullptr;                        ///< scratch, [128]
  float* cap_slope = nullptr;                   ///< [num_rows][128] out; null: not wanted
  const kernels::GroupRange* groups = nullptr;  ///< [num_groups]
};

/// Dot products to natural logits, in place. A bias of minus infinity clears the row's bit.
void modify_logits(const AttentionCall& call, const WorkItem& item, std::int64_t tile,
                   const TileScores& scores);

/// 0 or 1 / (1 - rate) for one row of dropout by key.
class RowDropout {
 public:
  RowDropout(const AttentionCall& call, const WorkItem& item, std::int64_t tile, int row);
  [[nodiscard]] float kept(int key) {
    key_.kv_pos = k_pos_[key];
    return static_cast<double>(uniform_at(key_)) >= rate_ ? scale_ : 0.0F;
  }

 private:
  double rate_;
  float scale_;
  const std::int32_t* k_pos_;
  DropoutKey key_;
};

}  // namespace sightline
