// Asks a subject one question: call by call, with sizes held against the question.
#pragma once

#include "sightline/checker/subject.h"

namespace sightline::checker {

/// `question`: inputs without outputs; it then holds the answers, those of its calls put together.
/// Errors: those of the subject; an answer of another size, or none at all.
[[nodiscard]] Result<void> ask(Subject& subject, Observation& question);

/// The same inputs, unanswered.
[[nodiscard]] Observation without_outputs(Observation answered);

}  // namespace sightline::checker
