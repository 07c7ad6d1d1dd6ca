// Questions made for a spec: inputs under which faults differ from each other, within what a subject can be
// told.
#pragma once

#include <string>
#include <vector>

#include "sightline/checker/check.h"

namespace sightline::checker {

struct Probe {
  std::string name;      ///< one or two words for people
  Observation question;  ///< inputs without outputs
};

/// The first is `whole`: one call over all tokens. `chunks`, where it is there, has the inputs of `whole`.
[[nodiscard]] std::vector<Probe> make_probes(const AttentionSpec& spec, const SubjectTraits& traits,
                                             const CheckOptions& options);

/// Tokens that the rules of the mask need to show: beyond its longest window, at least 33, at most 768.
[[nodiscard]] std::int64_t telling_length(const MaskSpec& mask);

/// What the spec says and these probes cannot show, one line each.
[[nodiscard]] std::vector<std::string> blind_spots(const AttentionSpec& spec, const SubjectTraits& traits,
                                                   std::int64_t num_tokens);

}  // namespace sightline::checker
