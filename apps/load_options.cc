#include "apps/load_options.h"

namespace sightline::apps {

void add_load_statements(Cli& cli, LoadStatements& s) {
  cli.option("--rope-pairing", s.rope_pairing, "ORDER",
             "states the order of q and k rows in the file: neighbours or halves; none: no rotation")
      .choices({"interleaved", "half_split", "none"});
  cli.option("--rope-scaling", s.rope_scaling, "KIND", "states the rope scaling in place of the file's keys")
      .choices({"none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"});
  cli.option("--rope-factor", s.rope_factor, "X", "factor of --rope-scaling").range(1e-9, 1e9);
  cli.option("--rope-original-context", s.rope_original_context, "N",
             "trained context of --rope-scaling dynamic_ntk, yarn and llama3")
      .range(1, 1LL << 40);
  cli.option("--rope-theta", s.rope_theta, "X", "states the base of the rotary frequencies")
      .range(1e-9, 1e18);
  cli.option("--window", s.window, "N", "states the sliding window of every layer; 0: none")
      .range(0, 1LL << 40);
  cli.option("--pre", s.pre_tokenizer, "NAME", "states the pre-tokenizer of a byte-level BPE vocabulary");
  cli.option("--ignore-key", s.ignored_keys, "KEY", "states that a key of the file is without meaning");
}

Result<LoadOptions> to_load_options(const LoadStatements& s) {
  LoadOptions options;
  if (!s.rope_pairing.empty()) options.rope_pairing = parse_rope_pairing(s.rope_pairing);
  options.rope_theta = s.rope_theta;
  options.window = s.window;
  options.pre_tokenizer = s.pre_tokenizer;
  options.ignored_keys = s.ignored_keys;
  if (s.rope_scaling.empty()) {
    if (s.rope_factor || s.rope_original_context) {
      return fail(ErrorKind::kInvalidArgument,
                  "--rope-factor and --rope-original-context need --rope-scaling");
    }
    return options;
  }
  RopeScaling& scaling = options.rope_scaling.emplace();
  scaling.kind = *parse_rope_scaling_kind(s.rope_scaling);
  const bool needs_context = scaling.kind == RopeScalingKind::kDynamicNtk ||
                             scaling.kind == RopeScalingKind::kYarn ||
                             scaling.kind == RopeScalingKind::kLlama3;
  if (scaling.kind != RopeScalingKind::kNone && !s.rope_factor) {
    return fail(ErrorKind::kInvalidArgument, "--rope-scaling {} needs --rope-factor", s.rope_scaling);
  }
  if (needs_context && !s.rope_original_context) {
    return fail(ErrorKind::kInvalidArgument, "--rope-scaling {} needs --rope-original-context",
                s.rope_scaling);
  }
  scaling.factor = s.rope_factor.value_or(1.0);
  scaling.original_context = s.rope_original_context.value_or(0);
  return options;
}

}  // namespace sightline::apps
