// Which faults are worth trying on an observation, and over which values of their parameters.
#pragma once

#include <span>
#include <vector>

#include "sightline/checker/observation.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {

/// A row of the fault table with the values that its first parameter may take; rows without a parameter have
/// a single value. A row with a second parameter has one hypothesis for each value of that.
struct Hypothesis {
  const FaultKind* kind = nullptr;
  std::vector<double> values;   ///< to try, simplest first; empty: the row has no parameter
  std::vector<double> rest;     ///< values of the parameters behind the first
  bool is_continuous = false;   ///< between two values others may be meant: refine
  bool is_logarithmic = false;  ///< refine the logarithm

  [[nodiscard]] Fault fault(double value) const;
};

/// Rows that can show in one of these sequences of calls, in the order of the table. The longest decides
/// which values are tried.
[[nodiscard]] std::vector<Hypothesis> hypotheses(std::span<const Observation> observations);

}  // namespace sightline::checker
