// What the options of `check` say of the meaning.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "apps/cli.h"
#include "apps/rope_options.h"
#include "sightline/spec/attention_spec.h"

namespace sightline::apps {

struct Declaration {
  std::string mask = "causal";
  std::string rope = "none";
  std::optional<int> rotary_dim;
  RopeOptions rope_options;
  std::optional<double> scale;
  double softcap = 0.0;
  bool has_alibi = false;

  friend bool operator==(const Declaration&, const Declaration&) = default;
};

/// The options from --mask to --alibi, or the whole as a file.
struct DeclarationOptions {
  std::filesystem::path spec;
  Declaration declaration;

  friend bool operator==(const DeclarationOptions&, const DeclarationOptions&) = default;
};

void add_declaration_options(Cli& cli, DeclarationOptions& options);

/// Options that would change nothing are refused: a declaration other than the intended one names a fault
/// that is none. Errors: kInvalidArgument.
[[nodiscard]] Result<void> check_declaration(const DeclarationOptions& options);

/// The declared spec; whatever hangs on the heads is set from `heads`. A file may state its own.
/// Errors: those of the file and of the rules.
[[nodiscard]] Result<AttentionSpec> declared_spec(const DeclarationOptions& options, const HeadSpec& heads);

}  // namespace sightline::apps
