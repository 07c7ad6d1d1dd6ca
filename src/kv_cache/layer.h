// What is fixed for a layer when the cache is made: page shape, rotation, and how far back it can see.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_cache/page_pool.h"
#include "sightline/kernels/rope.h"
#include "sightline/spec/attention_spec.h"

namespace sightline::kv_cache {

/// A rotation that one or more layers store their keys in; cos and sin are computed once for all of them.
struct Rotation {
  RopeSpec rope;
  std::vector<double> frequencies;
  kernels::RotaryPairs pairs;
};

struct Layer {
  AttentionSpec spec;
  int shape_idx = 0;
  int rotation_idx = -1;  ///< -1: stored as they come
  ReachBack reach;
};

[[nodiscard]] Rotation make_rotation(const RopeSpec& rope, std::int64_t rope_length);

/// cos and sin of each pair for one or more tokens: [num_tokens][cos of num_pairs, sin of num_pairs].
[[nodiscard]] std::vector<float> rotation_rows(const Rotation& rotation,
                                               std::span<const std::int64_t> rope_pos);

/// Turns stored keys by a difference of positions. In double, rounded once to the storage type, so that a
/// hundred shifts err little more than one; the magnitude is in the stored key already and stays as it is.
class ReRotation {
 public:
  ReRotation(const Rotation& rotation, std::int64_t delta);
  void apply(std::span<float> key) const;

 private:
  kernels::RotaryPairs pairs_;
  std::vector<double> cos_;
  std::vector<double> sin_;
};

}  // namespace sightline::kv_cache
