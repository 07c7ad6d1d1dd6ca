// Everything that one attention call means.
#pragma once

#include <string>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/spec/heads.h"
#include "sightline/spec/mask.h"
#include "sightline/spec/rope.h"
#include "sightline/spec/score.h"

namespace sightline {

/// The meaning of one attention layer. Callers pass q and k unrotated; attention and the cache rotate.
struct AttentionSpec {
  HeadSpec heads;
  MaskSpec mask;
  RopeSpec rope;
  ScoreSpec score;
  bool operator==(const AttentionSpec&) const = default;
};

/// Each part's own checks, and that kInCache stands only with a mask of the form it is defined for:
/// reach_back bounded with num_first > 0.
[[nodiscard]] Result<void> validate(const AttentionSpec& spec);

/// JSON of every field (masks as text, enums as words); reading it gives an equal spec.
[[nodiscard]] Json to_json(const AttentionSpec& spec);
/// Missing members keep their defaults; an unknown member or a wrong type is refused by name.
[[nodiscard]] Result<AttentionSpec> attention_spec_from_json(const Json& json);

/// One line for people: "GQA 9 query / 3 key heads of 64, causal, rope interleaved 64 theta 100000, ...".
[[nodiscard]] std::string describe(const AttentionSpec& spec);

}  // namespace sightline
