// Sightline's own attention as a subject: the control that must always agree.
#pragma once

#include <memory>

#include "sightline/checker/subject.h"

namespace sightline::subjects {

/// The f32 forward from contiguous arrays, with out and lse.
[[nodiscard]] std::unique_ptr<checker::Subject> engine_subject(int num_threads);

}  // namespace sightline::subjects
