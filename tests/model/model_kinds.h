// One model of each way that a ModelSpec can differ, for tests that hold all of them to one claim.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_runner.h"
#include "sightline/reference/model.h"

namespace sightline::testing {

struct Kind {
  const char* name;
  ModelSpec spec;
  std::int64_t rope_length = 0;
};
[[nodiscard]] std::vector<Kind> kinds();

/// The same tokens for the oracle. Views into `tokens`.
[[nodiscard]] reference::ModelInputs as_inputs(const Tokens& tokens, std::int64_t rope_length = 0);

}  // namespace sightline::testing
