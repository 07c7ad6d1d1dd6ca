#include "attention/rope_table.h"

#include <algorithm>

namespace sightline {

void RopeTable::prepare(const RopeSpec& rope, std::int64_t rope_length,
                        std::span<const std::int64_t> positions, ThreadPool& pool) {
  const bool same_rotation = rope_length == rope_length_ && rope == rope_;
  if (same_rotation && std::ranges::equal(positions, positions_)) return;
  if (!same_rotation) {
    rope_ = rope;
    rope_length_ = rope_length;
    pairs_ = rotary_pairs(rope);
    frequencies_ = rope_frequencies(rope, rope_length);
  }
  positions_.assign(positions.begin(), positions.end());
  if (!active()) return;
  cells_.reserve_discard(positions.size() * 2 * static_cast<std::size_t>(pairs_.num_pairs));
  constexpr std::int64_t kRows = 64;
  const auto num_rows = static_cast<std::int64_t>(positions.size());
  pool.parallel_for((num_rows + kRows - 1) / kRows, [this, num_rows](std::int64_t block, int) {
    for (std::int64_t row = block * kRows; row < std::min(num_rows, (block + 1) * kRows); ++row) {
      float* cell = cells_.data() + row * 2 * pairs_.num_pairs;
      kernels::rope_cos_sin(frequencies_, positions_[static_cast<std::size_t>(row)], rope_.cos_sin_magnitude,
                            cell, cell + pairs_.num_pairs);
    }
  });
}

}  // namespace sightline
