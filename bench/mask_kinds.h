// The masks whose visible keys form ranges: what rows of masks, forward and backward, are made of.
#pragma once

#include <span>

#include "sightline/spec/coords.h"

namespace sightline::bench {

struct MaskKind {
  const char* name;
  const char* mask;                     ///< as parse_mask takes it
  void (*mark)(std::span<TokenCoord>);  ///< as AttentionCase::mark; null: none
};

[[nodiscard]] std::span<const MaskKind> mask_kinds();

}  // namespace sightline::bench
