#include "sightline/kernels/rope.h"

#include <cmath>

namespace sightline::kernels {

void rope_cos_sin(std::span<const double> frequencies, std::int64_t pos, double magnitude, float* cos,
                  float* sin) {
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double angle = static_cast<double>(pos) * frequencies[i];
    cos[i] = static_cast<float>(magnitude * std::cos(angle));
    sin[i] = static_cast<float>(magnitude * std::sin(angle));
  }
}

void rotate_head(const RotaryPairs& pairs, const float* cos, const float* sin, const float* from,
                 std::ptrdiff_t from_stride, float* to, std::ptrdiff_t to_stride) {
  for (int i = 0; i < pairs.num_pairs; ++i) {
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(i) * pairs.step;
    const std::ptrdiff_t second = first + pairs.offset;
    const float a = from[first * from_stride];
    const float b = from[second * from_stride];
    to[first * to_stride] = a * cos[i] - b * sin[i];
    to[second * to_stride] = a * sin[i] + b * cos[i];
  }
}

void rotate_head_back(const RotaryPairs& pairs, const float* cos, const float* sin, const float* from,
                      std::ptrdiff_t from_stride, float* to, std::ptrdiff_t to_stride) {
  for (int i = 0; i < pairs.num_pairs; ++i) {
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(i) * pairs.step;
    const std::ptrdiff_t second = first + pairs.offset;
    const float a = from[first * from_stride];
    const float b = from[second * from_stride];
    to[first * to_stride] = a * cos[i] + b * sin[i];
    to[second * to_stride] = b * cos[i] - a * sin[i];
  }
}

}  // namespace sightline::kernels
