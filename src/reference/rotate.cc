#include "sightline/reference/rotate.h"

#include <cmath>

#include "sightline/base/half.h"

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

double round_to(Precision precision, double x) {
  switch (precision) {
    case Precision::kDouble:
      return x;
    case Precision::kFloat:
      return static_cast<float>(x);
    case Precision::kBf16:
      return to_f32(to_bf16(static_cast<float>(x)));
    case Precision::kF16:
      return to_f32(to_f16(static_cast<float>(x)));
  }
  return x;
}

std::vector<CosSin> cos_sin(const RopeSpec& rope, std::span<const double> frequencies, std::int64_t rope_pos,
                            Turn turn, RopeStage stage, Precision precision) {
  std::vector<CosSin> turns;
  if (rope.pairing == RopePairing::kNone) return turns;
  const bool backwards = turn == Turn::kTranspose || turn == Turn::kInverse;
  const double magnitude = magnitude_of(rope, turn);
  const auto rounded = [&](RopeStage at, double x) { return stage == at ? round_to(precision, x) : x; };
  const double position = rounded(RopeStage::kPosition, static_cast<double>(rope_pos));
  turns.reserve(frequencies.size());
  for (const double frequency : frequencies) {
    const double angle = rounded(RopeStage::kAngle, position * rounded(RopeStage::kFrequency, frequency));
    turns.push_back({magnitude * rounded(RopeStage::kTable, std::cos(angle)),
                     magnitude * rounded(RopeStage::kTable, std::sin(backwards ? -angle : angle))});
  }
  return turns;
}

void rotate(const RopeSpec& rope, std::span<const CosSin> turns, std::span<double> head) {
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const RopePair pair = rope_pair(rope, static_cast<int>(i));
    double& a = head[static_cast<std::size_t>(pair.first)];
    double& b = head[static_cast<std::size_t>(pair.second)];
    const double turned_a = a * turns[i].cosine - b * turns[i].sine;
    const double turned_b = a * turns[i].sine + b * turns[i].cosine;
    a = turned_a;
    b = turned_b;
  }
}

void rotate(const RopeSpec& rope, std::span<const double> frequencies, std::int64_t rope_pos,
            std::span<double> head, Turn turn) {
  rotate(rope, cos_sin(rope, frequencies, rope_pos, turn), head);
}

}  // namespace sightline::reference
