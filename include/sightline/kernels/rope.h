// The rotation arithmetic that attention and the cache share, so that a key has the same bits wherever it
// was rotated. Angles in double, cos and sin rounded once; products in f32, never fused. Knows no spec: the
// caller passes frequencies and how components are paired.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sightline::kernels {

/// Pair i of a head is components (i * step, i * step + offset): interleaved {1 apart} = {n, 2, 1},
/// half-split = {n, 1, n}.
struct RotaryPairs {
  int num_pairs = 0;  ///< rotary_dim / 2; 0: nothing rotates
  int step = 1;
  int offset = 0;
};

/// cos[i] = magnitude * cos(pos * frequencies[i]) and the same for sin, computed in double and rounded once.
/// cos and sin have one entry a pair.
void rope_cos_sin(std::span<const double> frequencies, std::int64_t pos, double magnitude, float* cos,
                  float* sin);

/// Rotates one head in place or from `from` to `to`, components `stride` apart in both:
/// (a, b) -> (a cos - b sin, a sin + b cos). Components that no pair holds are left alone.
void rotate_head(const RotaryPairs& pairs, const float* cos, const float* sin, const float* from,
                 std::ptrdiff_t from_stride, float* to, std::ptrdiff_t to_stride);

/// The inverse rotation of the same arithmetic: (a, b) -> (a cos + b sin, b cos - a sin).
void rotate_head_back(const RotaryPairs& pairs, const float* cos, const float* sin, const float* from,
                      std::ptrdiff_t from_stride, float* to, std::ptrdiff_t to_stride);

}  // namespace sightline::kernels
