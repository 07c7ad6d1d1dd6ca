// Every fault that the engine can run, with the value of its parameter that comes nearest to what was
// observed of a model.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "subjects/model/faulted_run.h"

namespace sightline::subjects {

/// Bounds beyond which a candidate, or one answer beside another, cannot be rounding.
inline constexpr double kExcluded = 10.0;

/// An observation with what rounding may do to it when the file is run as it is.
struct BoundedText {
  const ModelObservation* observation = nullptr;
  RoundingBounds bounds;
  double declared_worst = 0;   ///< in bounds
  double declared_square = 0;  ///< of the differences from the declared run, in squared bounds, their sum
};

struct Candidate {
  Fault fault;
  double worst = 0;       ///< over all texts, in the bounds of this candidate
  double sum_square = 0;  ///< over all texts, in the bounds of the declared run
  int num_excluding = 0;  ///< texts that were run and put it beyond kExcluded
};

class CandidateSearch {
 public:
  using Progress = std::function<void(int done, int total, std::string_view step)>;

  /// `texts`: with log-probabilities, at least one. `is_noisy`: bounds are of rounding, not exact, so that a
  /// value is measured on all texts. References must outlive the search.
  CandidateSearch(const ModelRunner& runner, const ModelSpec& model, std::span<const BoundedText> texts,
                  bool is_noisy, const Progress& progress);

  /// Best first. Values are looked for on one text and held against all.
  [[nodiscard]] Result<std::vector<Candidate>> run();
  [[nodiscard]] static int num_steps();

 private:
  struct Tried {
    Fault fault;
    double worst = 0;
    double square = INFINITY;  // of the texts it was tried on; infinite: it applies to none
  };

  [[nodiscard]] Result<Tried> coarse(const FaultKind& kind) const;
  [[nodiscard]] Result<Tried> try_value(const FaultKind& kind, double value,
                                        std::span<const BoundedText> texts) const;
  [[nodiscard]] Result<void> hold_within_noise(std::vector<Candidate>& candidates) const;
  [[nodiscard]] Result<void> refine(Tried& best, std::span<const BoundedText> texts) const;
  [[nodiscard]] Result<void> refine_on_scale(Tried& best, std::span<const BoundedText> texts,
                                             double ratio) const;
  [[nodiscard]] Result<void> take_round_number(Tried& best, std::span<const BoundedText> texts) const;
  [[nodiscard]] Result<void> refine_whole(Tried& best, const std::vector<double>& grid) const;
  [[nodiscard]] Result<Candidate> held_against_all(const Tried& tried, double nearest) const;

  const ModelRunner& runner_;
  const ModelSpec& model_;
  std::span<const BoundedText> texts_;
  bool is_noisy_;
  const Progress& progress_;
  const BoundedText* searched_;
  std::vector<const BoundedText*> others_;  ///< shortest first
};

}  // namespace sightline::subjects
