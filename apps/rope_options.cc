#include "apps/rope_options.h"

namespace sightline::apps {

void add_rope_options(Cli& cli, RopeOptions& rope) {
  cli.option("--theta", rope.theta, "X", "base of the frequencies");
  cli.option("--scaling", rope.scaling, "KIND", "how the context is extended")
      .choices({"none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"});
  cli.option("--factor", rope.factor, "X", "extension factor");
  cli.option("--original-context", rope.original_context, "N", "tokens trained on").range(0, 1LL << 40);
  cli.option("--low-freq-factor", rope.low_freq_factor, "X", "llama3");
  cli.option("--high-freq-factor", rope.high_freq_factor, "X", "llama3");
  cli.option("--beta-fast", rope.beta_fast, "X", "yarn");
  cli.option("--beta-slow", rope.beta_slow, "X", "yarn");
  cli.option("--ramp", rope.ramp, "WORD", "yarn: as the programs run it, or as the paper has it")
      .choices({"dimension", "wavelength"});
  cli.option("--magnitude", rope.magnitude, "X", "multiplies cosine and sine");
}

Result<RopeSpec> to_rope_spec(const RopeOptions& options, RopePairing pairing, int rotary_dim) {
  RopeOptions unscaled;
  unscaled.theta = options.theta;
  unscaled.magnitude = options.magnitude;
  if (options.scaling == "none" && options != unscaled) {
    return fail(ErrorKind::kInvalidArgument, "--factor, --original-context and the like need --scaling");
  }
  RopeSpec rope;
  rope.pairing = pairing;
  rope.rotary_dim = rotary_dim;
  rope.theta = options.theta;
  rope.cos_sin_magnitude = options.magnitude;
  RopeScaling& scaling = rope.scaling;
  scaling.kind = *parse_rope_scaling_kind(options.scaling);
  scaling.factor = options.factor;
  scaling.original_context = options.original_context;
  scaling.low_freq_factor = options.low_freq_factor;
  scaling.high_freq_factor = options.high_freq_factor;
  scaling.beta_fast = options.beta_fast;
  scaling.beta_slow = options.beta_slow;
  scaling.ramp = options.ramp == "wavelength" ? YarnRamp::kWavelength : YarnRamp::kDimension;
  SIGHTLINE_CHECK(validate(rope, rotary_dim));
  return rope;
}

}  // namespace sightline::apps
