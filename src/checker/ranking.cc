#include "checker/ranking.h"

#include <algorithm>

#include "checker/faulted_calls.h"

namespace sightline::checker {

std::string text_of(std::span<const Fault> faults) {
  std::string text;
  for (const Fault& fault : faults) text += (text.empty() ? "" : " and ") + to_string(fault);
  return text;
}

std::vector<double> row_errors(const Observation& observation) {
  const Simulator simulator(observation, all_rows(observation));
  // The spec was validated: what is declared can always be predicted.
  return compare(simulator, *simulator.predict({})).worst_of_row;
}

std::vector<RankedHypothesis> ranked(std::span<const Candidate> tried, double declared_misfit) {
  std::vector<RankedHypothesis> all{{"the declared meaning", declared_misfit}};
  for (const Candidate& candidate : tried) {
    const std::string text = text_of(candidate.faults);
    if (std::ranges::find(all, text, &RankedHypothesis::what) == all.end()) {
      all.push_back({text, candidate.score.worst});
    }
  }
  std::ranges::stable_sort(all, {}, &RankedHypothesis::misfit);
  if (all.size() > kMaxRanked) all.resize(kMaxRanked);
  return all;
}

}  // namespace sightline::checker
