// What `explain --rope` shows: the angle of each pair at a distance, and the score against distance.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sightline/base/json.h"
#include "sightline/spec/rope.h"

namespace sightline::apps {

struct RopeReport {
  struct Pair {
    RopePair components;
    double frequency = 0;   // radians per token
    double wavelength = 0;  // tokens per turn
    double angle = 0;       // radians, at the distance asked for
  };
  struct Score {
    std::int64_t distance = 0;
    double score = 0;
  };
  RopeSpec rope;
  std::int64_t rope_length = 0;
  std::int64_t distance = 0;
  std::vector<Pair> pairs;
  /// Of two equal vectors with the same length in every pair: the mean cosine, times magnitude squared.
  std::vector<Score> scores;
};

/// Errors (kInvalidArgument): those of validate(rope), pairing none.
[[nodiscard]] Result<RopeReport> make_rope_report(const RopeSpec& rope, std::int64_t rope_length,
                                                  std::int64_t distance);
[[nodiscard]] std::string to_text(const RopeReport& report);
[[nodiscard]] Json to_json(const RopeReport& report);

}  // namespace sightline::apps
