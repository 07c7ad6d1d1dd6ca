#include "subjects/model/candidate_search.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "sightline/base/golden_section.h"
#include "subjects/model/altered_settings.h"
#include "subjects/model/parameter_values.h"

namespace sightline::subjects {
namespace {

constexpr double kNear = 4.0;         // squared bounds: twenty standard deviations
constexpr double kFar = 25.0;         // squared bounds
constexpr double kHopeless = 1e3;     // bounds
constexpr int kRefinements = 14;      // golden sections of a continuous parameter
constexpr int kNoisyRefinements = 8;  // the same where noise hides what comes after
constexpr std::size_t kMaxRefined = 3;
constexpr std::ptrdiff_t kQuickTokens = 64;  // of a text that is worth a hundred forwards
constexpr double kAsGood =
    0.25;  // squared bounds: five standard deviations, as errors of one text go together
constexpr double kNearOwnBounds = 3.0;  // bounds

std::vector<const FaultKind*> all_kinds() {
  std::vector<const FaultKind*> kinds;
  for (const FaultKind& kind : fault_table()) {
    if (runs_in_engine(kind) || moves_rows(kind)) kinds.push_back(&kind);
  }
  for (const FaultKind& kind : altered_settings()) kinds.push_back(&kind);
  return kinds;
}

// A quick text on which the declared run fails most; the shortest where none is quick.
const BoundedText* text_to_search(std::span<const BoundedText> texts) {
  const auto length = [](const BoundedText& t) { return std::ssize(t.observation->ids); };
  const BoundedText* best = &*std::ranges::min_element(texts, {}, length);
  for (const BoundedText& text : texts) {
    if (length(text) <= kQuickTokens && text.declared_square > best->declared_square) best = &text;
  }
  return best;
}

}  // namespace

CandidateSearch::CandidateSearch(const ModelRunner& runner, const ModelSpec& model,
                                 std::span<const BoundedText> texts, bool is_noisy, const Progress& progress)
    : runner_(runner),
      model_(model),
      texts_(texts),
      is_noisy_(is_noisy),
      progress_(progress),
      searched_(text_to_search(texts)) {
  for (const BoundedText& text : texts) {
    if (&text != searched_) others_.push_back(&text);
  }
  std::ranges::stable_sort(others_, {}, [](const BoundedText* t) { return std::ssize(t->observation->ids); });
}

int CandidateSearch::num_steps() { return static_cast<int>(all_kinds().size()); }

Result<std::vector<Candidate>> CandidateSearch::run() {
  std::vector<Tried> found;
  int done = 0;
  for (const FaultKind* kind : all_kinds()) {
    if (progress_) progress_(++done, num_steps() + 1, kind->slug);
    SIGHTLINE_TRY(Tried best, coarse(*kind));
    if (std::isfinite(best.square)) found.push_back(std::move(best));
  }
  std::ranges::stable_sort(found, {}, &Tried::square);
  const std::span<const BoundedText> searched(searched_, 1);
  for (std::size_t i = 0; i < std::min(kMaxRefined, found.size()); ++i)
    SIGHTLINE_CHECK(refine(found[i], searched));
  std::ranges::stable_sort(found, {}, &Tried::square);
  std::vector<Candidate> candidates;
  for (const Tried& tried : found) {
    SIGHTLINE_TRY(Candidate candidate, held_against_all(tried, found.front().square));
    candidates.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(candidates, {}, is_noisy_ ? &Candidate::sum_square : &Candidate::worst);
  if (is_noisy_) SIGHTLINE_CHECK(hold_within_noise(candidates));
  return candidates;
}

// The nearest is measured on all texts, as one text leaves its value vague; then what rounding does to each
// hypothesis that comes near, not to the declared one, decides whether it fits.
Result<void> CandidateSearch::hold_within_noise(std::vector<Candidate>& candidates) const {
  if (candidates.empty()) return {};
  Tried nearest{candidates.front().fault, candidates.front().worst, candidates.front().sum_square};
  SIGHTLINE_CHECK(refine(nearest, texts_));
  if (nearest.fault.values != candidates.front().fault.values) {
    SIGHTLINE_TRY(candidates.front(), held_against_all(nearest, nearest.square));
  }
  for (Candidate& candidate : candidates) {
    if (candidate.sum_square > candidates.front().sum_square + kNear) continue;
    candidate.worst = 0;
    for (const BoundedText& text : texts_) {
      SIGHTLINE_TRY(const auto own, runner_.bounds(*text.observation, candidate.fault));
      if (!own) {
        candidate.worst = std::max(candidate.worst, text.declared_worst);
        continue;
      }
      SIGHTLINE_TRY(const auto misfit, runner_.misfit(*text.observation, candidate.fault, *own));
      if (misfit) candidate.worst = std::max(candidate.worst, misfit->worst);
    }
  }
  return {};
}

Result<CandidateSearch::Tried> CandidateSearch::coarse(const FaultKind& kind) const {
  Tried best;
  const auto longest = std::ssize(searched_->observation->ids);
  for (const double value : parameter_values(kind, model_, longest).grid) {
    SIGHTLINE_TRY(Tried tried, try_value(kind, value, std::span(searched_, 1)));
    if (tried.square < best.square) best = std::move(tried);
    // Within exact bounds there is nothing better to find; within noise there is.
    if (!is_noisy_ && std::isfinite(best.square) && best.worst <= 1) break;
  }
  return best;
}

Result<CandidateSearch::Tried> CandidateSearch::try_value(const FaultKind& kind, double value,
                                                          std::span<const BoundedText> texts) const {
  Tried tried{fault_at(kind, value, model_), 0, 0};
  bool applies = false;
  for (const BoundedText& text : texts) {
    SIGHTLINE_TRY(const auto misfit, runner_.misfit(*text.observation, tried.fault, text.bounds));
    // A text on which the fault changes nothing is as it was declared.
    applies = applies || misfit.has_value();
    tried.worst = std::max(tried.worst, misfit ? misfit->worst : text.declared_worst);
    tried.square += misfit ? misfit->square : text.declared_square;
  }
  if (!applies) tried.square = INFINITY;
  return tried;
}

Result<void> CandidateSearch::refine(Tried& best, std::span<const BoundedText> texts) const {
  const FaultKind& kind = *best.fault.kind;
  if (kind.parameters.empty() || (!is_noisy_ && best.worst <= 1)) return {};
  const ParameterValues values = parameter_values(kind, model_, std::ssize(searched_->observation->ids));
  if (values.has_gaps) return refine_whole(best, values.grid);
  if (values.ratio == 1) return {};
  SIGHTLINE_CHECK(refine_on_scale(best, texts, values.ratio));
  return take_round_number(best, texts);
}

// Golden section on the logarithm around the best coarse value.
Result<void> CandidateSearch::refine_on_scale(Tried& best, std::span<const BoundedText> texts,
                                              double ratio) const {
  const FaultKind& kind = *best.fault.kind;
  const double center = best.fault.values.front(), reach = std::log(ratio);
  const auto at_value = [&](double x) -> Result<double> {
    SIGHTLINE_TRY(Tried tried, try_value(kind, std::exp(x), texts));
    const double square = tried.square;
    if (square < best.square) best = std::move(tried);
    return square;
  };
  const GoldenSection section{std::log(center) - reach, std::log(center) + reach};
  SIGHTLINE_TRY(const double left, at_value(section.left()));
  SIGHTLINE_TRY(const double right, at_value(section.right()));
  const GoldenLimits limits{.max_steps = is_noisy_ ? kNoisyRefinements : kRefinements};
  SIGHTLINE_CHECK(narrow(section, GoldenPair<double>{left, right}, limits, at_value, std::less_equal<>{}));
  return {};
}

// The number of fewest digits that fits; within noise, that fits as well.
Result<void> CandidateSearch::take_round_number(Tried& best, std::span<const BoundedText> texts) const {
  const double exact = best.fault.values.front();
  for (const double digits : {1.0, 1e1, 1e2, 1e3}) {
    const double unit = std::pow(10.0, std::floor(std::log10(exact))) / digits;
    SIGHTLINE_TRY(Tried round, try_value(*best.fault.kind, std::round(exact / unit) * unit, texts));
    const bool is_as_good =
        std::isfinite(round.square) && (is_noisy_ ? round.square <= best.square + kAsGood : round.worst <= 1);
    if (!is_as_good) continue;
    best = std::move(round);
    return {};
  }
  return {};
}

// Every whole number between the best and its neighbours on the grid.
Result<void> CandidateSearch::refine_whole(Tried& best, const std::vector<double>& grid) const {
  const double center = best.fault.values.front();
  double low = -INFINITY, high = INFINITY;
  for (const double x : grid) {
    if (x < center) low = std::max(low, x);
    if (x > center) high = std::min(high, x);
  }
  const FaultKind& kind = *best.fault.kind;
  for (double x = std::isfinite(low) ? low + 1 : center; x < (std::isfinite(high) ? high : center + 1); ++x) {
    if (x == center) continue;
    SIGHTLINE_TRY(Tried tried, try_value(kind, x, std::span(searched_, 1)));
    if (tried.square < best.square) best = std::move(tried);
  }
  return {};
}

Result<Candidate> CandidateSearch::held_against_all(const Tried& tried, double nearest) const {
  Candidate candidate{tried.fault, 0, 0, 0};
  SIGHTLINE_TRY(const auto first, runner_.misfit(*searched_->observation, tried.fault, searched_->bounds));
  if (!first) return candidate;
  // What noise leaves far from the best is not run on long texts. What one text makes hopeless is run on
  // others, short ones first, until a second one excludes it too, which is what makes another name certain.
  const bool is_hopeless = first->worst > kHopeless;
  const bool is_far = is_noisy_ && first->square > nearest + kFar;
  const auto as_the_first = [&](const BoundedText& text) {
    return first->square * static_cast<double>(text.bounds.each.size()) /
           static_cast<double>(searched_->bounds.each.size());
  };
  const auto add = [&](double worst, double square) {
    candidate.worst = std::max(candidate.worst, worst);
    candidate.sum_square += square;
    if (worst > kExcluded) ++candidate.num_excluding;
  };
  add(first->worst, first->square);
  for (const BoundedText* const each : others_) {
    const BoundedText& text = *each;
    const bool is_long = std::ssize(text.observation->ids) > kQuickTokens;
    if (is_hopeless ? candidate.num_excluding >= 2 : is_far && is_long) {
      candidate.sum_square += as_the_first(text);
      continue;
    }
    SIGHTLINE_TRY(const auto misfit, runner_.misfit(*text.observation, tried.fault, text.bounds));
    // Where it changes nothing the text is as it was declared.
    add(misfit ? misfit->worst : text.declared_worst, misfit ? misfit->square : text.declared_square);
  }
  return candidate;
}

}  // namespace sightline::subjects
