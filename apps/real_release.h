// The first part of the demo: arrays that a release of another library computed, and the name of its fault.
#pragma once

#include "apps/output.h"
#include "sightline/base/error.h"

namespace sightline::apps {

/// Prints the file, the command and the verdict. A build whose examples are gone says so and goes on.
[[nodiscard]] Result<void> show_real_release(Output& out);

}  // namespace sightline::apps
