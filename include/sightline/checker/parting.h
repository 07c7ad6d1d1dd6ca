// How well one question would tell candidates apart: their simulated answers, pair by pair. What an answer is
// and how far two lie apart is the caller's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace sightline::checker {

struct Parting {
  int num_parted = 0;                                      ///< pairs whose answers lie apart
  double least = std::numeric_limits<double>::infinity();  ///< the smallest distance of these
};

/// Two answers lie apart when `distance(a, b)` is more than `needed`, in the same unit.
/// Cost: one distance for each pair.
template <typename Answer, typename Distance>
[[nodiscard]] Parting part(const std::vector<Answer>& answers, double needed, const Distance& distance) {
  Parting parting;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    for (std::size_t j = i + 1; j < answers.size(); ++j) {
      const double d = distance(answers[i], answers[j]);
      if (d <= needed) continue;
      ++parting.num_parted;
      parting.least = std::min(parting.least, d);
    }
  }
  return parting;
}

}  // namespace sightline::checker
