// How a report names a fault: the words of the fault table and of the catalogue, in one place.
#pragma once

#include <string_view>

#include "sightline/checker/report.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {

/// A kind with its definition, usual cause and fix from the catalogue; these are empty for a slug that it
/// does not know. Misfit 0, not certain.
[[nodiscard]] NamedFault named_fault(std::string_view slug);

/// A row of the table as it was planted: the row's variant and words, its parameters by name, the kind's
/// cause and fix.
[[nodiscard]] NamedFault named_fault(const Fault& fault);

/// "loss.scope/by_value".
[[nodiscard]] std::string full_name(const NamedFault& fault);

}  // namespace sightline::checker
