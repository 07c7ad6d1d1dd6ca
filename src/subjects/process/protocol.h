// The JSON lines between a check and a subject: calls, answers and traits as JSON and back. The format is
// docs/subjects.md.
#pragma once

#include "sightline/base/json.h"
#include "sightline/checker/subject.h"

namespace sightline::subjects {

inline constexpr int kProtocolVersion = 1;

/// {"takes": ["positions", ...], "holds_cache": false}, and "cache_bytes_per_token" where it is known
[[nodiscard]] Json to_json(const checker::SubjectTraits& traits);
/// Errors (kInvalidContent): no object, an unknown word in `takes`.
[[nodiscard]] Result<checker::SubjectTraits> traits_from_json(const Json& json);

/// Everything that a subject may want to know of a call.
[[nodiscard]] Json call_to_json(const checker::Observation& call);
/// {"do": "answer_batch", "rows": [call, ...]}
[[nodiscard]] Json batch_to_json(std::span<const checker::Observation> rows);
/// Errors (kInvalidContent, kInvalidArgument): a member missing or of another type or size.
[[nodiscard]] Result<checker::Observation> call_from_json(const Json& json);

[[nodiscard]] Json answer_to_json(const checker::Observation& call);
/// Fills the outputs. Arrays are flat or nested, null is NaN.
/// Errors (kInvalidContent): no object, no array of numbers.
[[nodiscard]] Result<void> read_answer(const Json& json, checker::Observation& call);
/// {"rows": [answer, ...]}, one for each of `rows`. Errors: also another number of answers.
[[nodiscard]] Result<void> read_batch_answer(const Json& json, std::span<checker::Observation> rows);

}  // namespace sightline::subjects
