// Random declarations, observations of them and faults to plant, for the checker's own tests. Sizes avoid
// the symmetric ones under which faults hide.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/checker/observation.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {

class RandomScene {
 public:
  explicit RandomScene(std::uint64_t seed);

  /// Which outputs an observation holds.
  enum class Seen : std::uint8_t { kOut, kOutAndLse, kGradientsToo };

  [[nodiscard]] const AttentionSpec& spec() const { return spec_; }
  /// Inputs of a new length, cut into new calls, rounded to the scene's type; outputs are empty.
  [[nodiscard]] Observation observation();
  /// A row of the table with random parameters; those of a draft tree give the scene a mask with `tree`.
  [[nodiscard]] Fault fault(const FaultKind& kind);

  /// Fills the outputs with what the oracle answers under `faults`, rounded to the type. False: they do not
  /// apply to this observation, which then holds the right answers.
  bool observe(Observation& observation, std::span<const Fault> faults) const;

 private:
  int between(int low, int high);
  AttentionSpec random_spec();
  void grow_drafts(Observation& observation);

  Rng rng_;
  AttentionSpec spec_;
  ElementType type_;
  Seen seen_;
};

/// True when the declared meaning misses no observation clearly: there is nothing to name.
[[nodiscard]] bool is_hidden(std::span<const Observation> observations);

/// A number from the environment: SIGHTLINE_CONFUSION_SEED begins another set of scenes,
/// SIGHTLINE_CONFUSION_SCENES plants each row that often where it shows, SIGHTLINE_CONFUSION_CONTROLS is the
/// number of right answers.
[[nodiscard]] std::uint64_t confusion_setting(const char* name, std::uint64_t usual);

}  // namespace sightline::checker
