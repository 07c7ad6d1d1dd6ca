// What the inputs of every probe have in common, whoever asks: where tokens stand, and the numbers drawn for
// them. Which probes are asked is not decided here.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/checker/observation.h"

namespace sightline::checker {

inline constexpr std::int64_t kFarPosition =
    5000;                             ///< beyond the tables and precision that short tests reach
inline constexpr double kLoud = 6.0;  ///< factor of q: logits that a cap or a weak fill changes

/// How the tokens of a probe stand in a row.
struct TokenLayout {
  std::int64_t num_tokens = 0;
  std::int64_t num_front_pads = 0, num_back_pads = 0;  ///< of the tokens; position 0 is behind the front ones
  std::vector<std::int64_t> document_begins;           ///< of documents after the first, as tokens of the row
};

/// Coordinates with one document after another, in each of which its third to fifth token are one span.
[[nodiscard]] std::vector<TokenCoord> lay_out(const TokenLayout& layout);

/// `count` numbers of about `size`, as `type` holds them.
[[nodiscard]] std::vector<double> draw(Rng& rng, ElementType type, std::int64_t count, double size = 1.5);

/// Draws q, k and v for the coordinates and the spec that `o` has; q is `loudness` times as large.
void draw_inputs(Rng& rng, double loudness, Observation& o);
void draw_upstream(Rng& rng, Observation& o);

}  // namespace sightline::checker
