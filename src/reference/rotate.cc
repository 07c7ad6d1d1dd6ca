#include "sightline/reference/rotate.h"

#include <cmath>

namespace sightline::reference {
namespace {

double magnitude_of(const RopeSpec& rope, Turn turn) {
  switch (turn) {
    case Turn::kForward:
    case Turn::kTranspose:
      return rope.cos_sin_magnitude;
    case Turn::kInverse:
      return 1.0 / rope.cos_sin_magnitude;
    case Turn::kMove:
      break;
  }
  return 1.0;
}

}  // namespace

void rotate(const RopeSpec& rope, std::span<const double> frequencies, std::int64_t rope_pos,
            std::span<double> head, Turn turn) {
  if (rope.pairing == RopePairing::kNone) return;
  const bool backwards = turn == Turn::kTranspose || turn == Turn::kInverse;
  const double magnitude = magnitude_of(rope, turn);
  for (int pair_idx = 0; pair_idx < rope.rotary_dim / 2; ++pair_idx) {
    const double angle = static_cast<double>(rope_pos) * frequencies[static_cast<std::size_t>(pair_idx)];
    const double cosine = magnitude * std::cos(angle);
    const double sine = magnitude * std::sin(backwards ? -angle : angle);
    const RopePair pair = rope_pair(rope, pair_idx);
    double& a = head[static_cast<std::size_t>(pair.first)];
    double& b = head[static_cast<std::size_t>(pair.second)];
    const double turned_a = a * cosine - b * sine;
    const double turned_b = a * sine + b * cosine;
    a = turned_a;
    b = turned_b;
  }
}

}  // namespace sightline::reference
