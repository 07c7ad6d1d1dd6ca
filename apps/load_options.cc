#include "apps/load_options.h"

namespace sightline::apps {

namespace {

/// "KEY=TYPE:VALUE" with llama.cpp's types.
Result<StatedKey> parse_stated_key(const std::string& text) {
  constexpr std::string_view kOption = "--override-kv";
  const std::size_t equals = text.find('=');
  const std::size_t colon = text.find(':', equals == std::string::npos ? 0 : equals);
  if (equals == 0 || equals == std::string::npos || colon == std::string::npos) {
    return fail(ErrorKind::kInvalidArgument, "{}: expected KEY=TYPE:VALUE, got {}", kOption, quote(text));
  }
  StatedKey stated{text.substr(0, equals), {}};
  const std::string type = text.substr(equals + 1, colon - equals - 1);
  const std::string value = text.substr(colon + 1);
  const auto as = [&]<typename T>(T parsed) -> Result<StatedKey> {
    SIGHTLINE_CHECK(parse_value(kOption, value, parsed));
    stated.value = Json(parsed);
    return stated;
  };
  if (type == "int") return as(std::int64_t{});
  if (type == "float") return as(double{});
  if (type == "bool") return as(bool{});
  if (type == "str") return as(std::string{});
  return fail(ErrorKind::kInvalidArgument, "{}: expected a type of int, float, bool or str, got {}", kOption,
              quote(type));
}

}  // namespace

void add_load_statements(Cli& cli, LoadStatements& s) {
  cli.option("--rope-pairing", s.rope_pairing, "ORDER",
             "states how the file orders rotated q and k rows; none: the model does not rotate")
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
  cli.option("--ignore-key", s.ignored_keys, "KEY",
             "states that a key of the file is without meaning; may be repeated");
  cli.option(
      "--override-kv", s.stated_keys, "KEY=TYPE:VALUE",
      "states any other key, whatever the file says; TYPE is int, float, bool or str; may be repeated");
}

Result<LoadOptions> to_load_options(const LoadStatements& s) {
  LoadOptions options;
  if (!s.rope_pairing.empty()) options.rope_pairing = parse_rope_pairing(s.rope_pairing);
  options.rope_theta = s.rope_theta;
  options.window = s.window;
  options.pre_tokenizer = s.pre_tokenizer;
  options.ignored_keys = s.ignored_keys;
  for (const std::string& text : s.stated_keys) {
    SIGHTLINE_TRY(StatedKey stated, parse_stated_key(text));
    options.stated_keys.push_back(std::move(stated));
  }
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
