// Evaluates combinations of faults against all observations, and measures their parameters.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "checker/hypotheses.h"
#include "checker/misfit.h"

namespace sightline::checker {

/// How well some faults explain everything seen.
struct Score {
  double worst = 0;        ///< largest misfit of any observation
  double mean_square = 0;  ///< mean over the observations
  int num_excluding = 0;   ///< observations in which it lies beyond kExcluded
  bool shows = false;      ///< it changes something in at least one observation
};

struct Candidate {
  std::vector<Fault> faults;
  Score score;
};

/// Before all agree, one query row in this many is compared: every row, unless that takes more than a few
/// seconds.
[[nodiscard]] std::int64_t row_step(const Observation& o);

class Searcher {
 public:
  /// `stop`, if any, is asked before each simulation, and must outlive this. Once it said so nothing is
  /// simulated any more, and no result means anything.
  explicit Searcher(std::span<const Observation> observations, const std::function<bool()>* stop = nullptr);

  [[nodiscard]] bool is_stopped() const { return is_stopped_; }

  /// The declared meaning itself, without any fault.
  [[nodiscard]] const std::vector<Misfit>& declared() const { return declared_; }

  /// What already misses the scouted rows is compared with those alone: enough to exclude it.
  [[nodiscard]] Score score(std::span<const Fault> faults) const;
  /// Whether these leave the scouted rows of the observation that tells most where they are. Cheap.
  [[nodiscard]] bool may_fit(std::span<const Fault> faults) const;
  /// Whether the outputs, log-sum-exps and weights of every observation are as declared, and there are some.
  [[nodiscard]] bool is_forward_right() const;
  /// Whether these leave them so on the scouted rows. Cheap: no gradient is computed.
  [[nodiscard]] bool keeps_forward(std::span<const Fault> faults) const;
  /// Multiplications of one first look, roughly.
  [[nodiscard]] double cost_of_look() const;
  /// `others` and the row of `hypothesis` with the value that explains most.
  [[nodiscard]] Candidate best(const Hypothesis& hypothesis, std::span<const Fault> others = {}) const;

 private:
  /// On the scouted rows of the observation that the declared meaning misses most; of all where it does not
  /// apply to that one.
  [[nodiscard]] Score first_look(std::span<const Fault> faults) const;
  /// What a first look at an observation predicts: its scouted rows, or all where gradients alone were seen.
  [[nodiscard]] const Simulator& looked_at(std::size_t i) const;
  [[nodiscard]] Candidate refine(const Hypothesis& hypothesis, std::span<const Fault> others,
                                 std::size_t best_idx) const;

  /// Asks `stop`, once it has not said so.
  [[nodiscard]] bool stops() const;

  std::vector<Simulator> simulators_;
  std::vector<Simulator> scouts_;  ///< the few rows that tell most, without gradients
  std::vector<Misfit> declared_;
  const std::function<bool()>* stop_ = nullptr;
  mutable bool is_stopped_ = false;  ///< searching is const, and what it was told stays
  std::size_t telling_ = 0;          ///< the observation that the declared meaning misses most
};

}  // namespace sightline::checker
