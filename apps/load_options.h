// The options that state what a model file leaves out, shared by every command that opens one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "sightline/base/error.h"
#include "sightline/model/model_info.h"

namespace sightline::apps {

struct LoadStatements {
  std::string rope_pairing, rope_scaling, pre_tokenizer;
  std::optional<double> rope_theta, rope_factor;
  std::optional<std::int64_t> rope_original_context, window;
  std::vector<std::string> ignored_keys, stated_keys;

  friend bool operator==(const LoadStatements&, const LoadStatements&) = default;
};

/// --rope-pairing, --rope-scaling, --rope-factor, --rope-original-context, --rope-theta, --window, --pre,
/// --ignore-key and --override-kv.
void add_load_statements(Cli& cli, LoadStatements& statements);

/// Errors: kInvalidArgument for a scaling that lacks a number it needs, a number without a scaling, and a
/// stated key that is not KEY=TYPE:VALUE.
[[nodiscard]] Result<LoadOptions> to_load_options(const LoadStatements& statements);

}  // namespace sightline::apps
