// Rotary positions in float64, one head vector at a time. The rotation of the oracle; tables, batches
// and storage are somebody else's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sightline/reference/deviation.h"
#include "sightline/spec/rope.h"

namespace sightline::reference {

/// How a head vector is turned. With m = cos_sin_magnitude and R(p) the rotation by p positions:
enum class Turn : std::uint8_t {
  kForward,    ///< m * R(p): what q and k undergo
  kTranspose,  ///< m * R(-p): the gradient through kForward
  kInverse,    ///< R(-p) / m: undoes kForward
  kMove,       ///< R(p) alone: moves a key that is already rotated by p positions more
};

/// One pair's turn by one position, times the magnitude.
struct CosSin {
  double cosine = 1;
  double sine = 0;
};

/// The turns of all pairs at `rope_pos`; empty under RopePairing::kNone. `stage` is rounded to `precision`.
///   frequencies  radians a token, rotary_dim / 2 entries, from rope_frequencies.
[[nodiscard]] std::vector<CosSin> cos_sin(const RopeSpec& rope, std::span<const double> frequencies,
                                          std::int64_t rope_pos, Turn turn = Turn::kForward,
                                          RopeStage stage = RopeStage::kNone,
                                          Precision precision = Precision::kDouble);

/// Turns `head` by what cos_sin gave.
void rotate(const RopeSpec& rope, std::span<const CosSin> turns, std::span<double> head);

/// Turns `head` [qk_head_dim] in place by `rope_pos` positions.
///
/// Each pair (a, b) becomes (a cos - b sin, a sin + b cos) with angle rope_pos * frequencies[pair]
/// (RoFormer, arXiv:2104.09864, eq. 34). Components from rotary_dim on pass through untouched, also by
/// the magnitude. Nothing happens under RopePairing::kNone.
///   frequencies  radians a token, rotary_dim / 2 entries, from rope_frequencies.
/// Requires validate(rope, head.size()). Cost: one sine and cosine a pair.
void rotate(const RopeSpec& rope, std::span<const double> frequencies, std::int64_t rope_pos,
            std::span<double> head, Turn turn = Turn::kForward);

/// x rounded to `precision`, kept as double.
[[nodiscard]] double round_to(Precision precision, double x);

}  // namespace sightline::reference
