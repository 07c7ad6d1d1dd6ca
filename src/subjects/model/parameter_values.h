// Values of a fault's one parameter worth trying on a model. A model answers wildly to a wrong number, so
// continuous ones are tried on a fine grid and refined within its ratio.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/faults/fault_table.h"
#include "sightline/model/model.h"

namespace sightline::subjects {

struct ParameterValues {
  std::vector<double> grid;  ///< usual ones first
  double ratio = 1;          ///< of neighbours on a continuous grid; 1: not refined so
  bool has_gaps = false;     ///< whole numbers with others in between
};

/// `longest`: tokens of the longest text; a window of more is none. A fault without parameters has one value.
[[nodiscard]] ParameterValues parameter_values(const FaultKind& kind, const ModelSpec& model,
                                               std::int64_t longest);

/// The fault with its first parameter at `value`; others at their defaults, lengths trained on at the
/// model's.
[[nodiscard]] Fault fault_at(const FaultKind& kind, double value, const ModelSpec& model);

}  // namespace sightline::subjects
