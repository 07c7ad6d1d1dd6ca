#include "checker/rounded_inside.h"

#include <algorithm>

#include "checker/misfit.h"

namespace sightline::checker {
namespace {

// Outputs that the half type holds may as well be right and rounded at the end.
bool is_of_type(const Observation& o, ElementType type) {
  return std::ranges::all_of(o.out, [&](double x) { return x != x || round_to(type, x) == x; });
}

// What is rounded inside is rounded in every row; the first ones, which see few keys, may show nothing.
bool is_everywhere(const std::vector<Misfit>& declared) {
  std::size_t num_rows = 0;
  std::size_t num_missed = 0;
  for (const Misfit& misfit : declared) {
    num_rows += misfit.worst_of_row.size();
    num_missed += static_cast<std::size_t>(
        std::ranges::count_if(misfit.worst_of_row, [](double worst) { return worst > kFits; }));
  }
  return 2 * num_missed > num_rows;
}

}  // namespace

std::vector<Candidate> rounded_inside(std::span<const Observation> observations,
                                      const std::vector<Misfit>& declared) {
  if (!is_everywhere(declared)) return {};
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
