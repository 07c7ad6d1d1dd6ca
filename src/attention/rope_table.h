// cos and sin of the tokens of one call. Kept between calls: layers of one step ask for the same rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/base/aligned_buffer.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kv_cache/rotary_pairs.h"
#include "sightline/spec/rope.h"

namespace sightline {

/// Row i holds cos and sin of positions[i] for every pair.
class RopeTable {
 public:
  /// Computes the rows unless the last call had the same rotation and positions.
  void prepare(const RopeSpec& rope, std::int64_t rope_length, std::span<const std::int64_t> positions,
               ThreadPool& pool);
  [[nodiscard]] bool active() const { return pairs_.num_pairs > 0; }
  [[nodiscard]] const kernels::RotaryPairs& pairs() const { return pairs_; }
  [[nodiscard]] const float* cos(std::int64_t row) const {
    return cells_.data() + row * 2 * pairs_.num_pairs;
  }
  [[nodiscard]] const float* sin(std::int64_t row) const { return cos(row) + pairs_.num_pairs; }
  [[nodiscard]] std::size_t bytes() const {
    return cells_.size() * sizeof(float) + positions_.capacity() * sizeof(std::int64_t);
  }

 private:
  RopeSpec rope_;
  std::int64_t rope_length_ = -1;
  kernels::RotaryPairs pairs_;
  std::vector<double> frequencies_;
  std::vector<std::int64_t> positions_;
  AlignedBuffer<float> cells_;
};

}  // namespace sightline
