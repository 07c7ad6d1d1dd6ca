#include "kv_cache/layer.h"

#include <cmath>

#include "sightline/kv_cache/rotary_pairs.h"

namespace sightline::kv_cache {

Rotation make_rotation(const RopeSpec& rope, std::int64_t rope_length) {
  return {rope, rope_frequencies(rope, rope_length), rotary_pairs(rope)};
}

std::vector<float> rotation_rows(const Rotation& rotation, std::span<const std::int64_t> rope_pos) {
  const auto num_pairs = static_cast<std::size_t>(rotation.pairs.num_pairs);
  std::vector<float> rows(rope_pos.size() * 2 * num_pairs);
  for (std::size_t i = 0; i < rope_pos.size(); ++i) {
    float* row = rows.data() + i * 2 * num_pairs;
    kernels::rope_cos_sin(rotation.frequencies, rope_pos[i], rotation.rope.cos_sin_magnitude, row,
                          row + num_pairs);
  }
  return rows;
}

ReRotation::ReRotation(const Rotation& rotation, std::int64_t delta) : pairs_(rotation.pairs) {
  for (const double frequency : rotation.frequencies) {
    const double angle = static_cast<double>(delta) * frequency;
    cos_.push_back(std::cos(angle));
    sin_.push_back(std::sin(angle));
  }
}

void ReRotation::apply(std::span<float> key) const {
  for (int i = 0; i < pairs_.num_pairs; ++i) {
    float& first = key[static_cast<std::size_t>(i * pairs_.step)];
    float& second = key[static_cast<std::size_t>(i * pairs_.step + pairs_.offset)];
    const double a = first;
    const double b = second;
    const double c = cos_[static_cast<std::size_t>(i)];
    const double s = sin_[static_cast<std::size_t>(i)];
    first = static_cast<float>(a * c - b * s);
    second = static_cast<float>(a * s + b * c);
  }
}

}  // namespace sightline::kv_cache
