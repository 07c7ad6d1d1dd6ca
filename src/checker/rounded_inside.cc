#include "checker/rounded_inside.h"

#include <algorithm>

#include "checker/misfit.h"

namespace sightline::checker {
namespace {

// Outputs that the half type holds may as well be right and rounded at the end.
bool is_of_type(const Observation& o, ElementType type) {
  return std::ranges::all_of(o.out, [&](double x) { return x != x || round_to(type, x) == x; });
}

}  // namespace

std::vector<Candidate> rounded_inside(std::span<const Observation> observations) {
  if (observations.front().type != ElementType::kF32 || observations.front().out.empty()) return {};
  for (const ElementType type : {ElementType::kF16, ElementType::kBf16}) {
    std::vector<Observation> coarse(observations.begin(), observations.end());
    if (std::ranges::any_of(coarse, [&](const Observation& o) { return is_of_type(o, type); })) return {};
    for (Observation& o : coarse) o.type = type;
    const Searcher searcher(coarse);
    const Score score = searcher.score({});
    if (score.worst <= kFits) return {{{parse_fault("score.softmax_precision").value()}, score}};
  }
  return {};
}

}  // namespace sightline::checker
