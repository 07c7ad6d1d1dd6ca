// --fault SLUG: a row of the fault table planted in generation as data. The engine takes the changed specs
// and coordinates as it takes right ones; it has no code for faults.
#pragma once

#include <string>

#include "apps/command.h"
#include "sightline/generate/generate.h"

namespace sightline::apps {

/// Prints the faults that a spec or a call's coordinates can express, one a line; returns 0.
[[nodiscard]] Result<int> list_faults(Invocation& call);

/// Sets hooks.specs and hooks.change_call as the fault `text` ("SLUG", "SLUG/VARIANT:NAME=NUMBER") says.
/// Errors: kInvalidArgument for an unknown fault, one that no spec or call can express, or one that does not
/// apply to this model.
[[nodiscard]] Result<void> plant_fault(const std::string& text, const Model& model, GenerateHooks& hooks);

}  // namespace sightline::apps
