// The options of commands that take a rotation: base, scaling and magnitude. Which components rotate is
// asked for by each command in its own words.
#pragma once

#include <string>

#include "apps/cli.h"
#include "sightline/spec/rope.h"

namespace sightline::apps {

struct RopeOptions {
  double theta = 10000.0;
  std::string scaling = "none";
  double factor = 1.0;
  std::int64_t original_context = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  double beta_fast = 32.0, beta_slow = 1.0;
  std::string ramp = "dimension";
  double magnitude = 1.0;

  friend bool operator==(const RopeOptions&, const RopeOptions&) = default;
};

/// Adds --theta, --scaling, --factor and the numbers of the scaling kinds.
void add_rope_options(Cli& cli, RopeOptions& rope);
/// The rotation of `rotary_dim` components. Errors: those of validate.
[[nodiscard]] Result<RopeSpec> to_rope_spec(const RopeOptions& rope, RopePairing pairing, int rotary_dim);

}  // namespace sightline::apps
