// A decoder in plain f32 loops: what the error rule measures the engine by. Shares no code with it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_fixtures.h"
#include "sightline/reference/model.h"

namespace sightline::testing {

/// The same weights for the oracle.
[[nodiscard]] reference::ModelWeights as_reference(const TestModel& model);

/// Logits [num_tokens, vocab_size], every sum in f32 and in the order of the text book. Rotation kinds and
/// masks as the spec says; no ALiBi, sinks, softcap of scores, learned scales (tests of those use kinds that
/// this has).
[[nodiscard]] std::vector<float> plain_logits(const TestModel& model, const reference::ModelInputs& inputs);

/// The largest |out - ref| that the error rule allows: twice the plain method's, plus the rounding of the
/// type.
[[nodiscard]] double allowed_error(std::span<const double> ref, std::span<const float> plain);
[[nodiscard]] double largest_error(std::span<const double> ref, std::span<const float> out);

}  // namespace sightline::testing
