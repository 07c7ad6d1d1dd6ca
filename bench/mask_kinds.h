// The masks whose visible keys form ranges: what rows of masks, forward and backward, are made of.
#pragma once

#include <span>
#include <string>

#include "bench/attention_case.h"
#include "sightline/spec/coords.h"

namespace sightline::bench {

struct MaskKind {
  const char* name;
  const char* mask;                     ///< as parse_mask takes it
  void (*mark)(std::span<TokenCoord>);  ///< as AttentionCase::mark; null: none
};

[[nodiscard]] std::span<const MaskKind> mask_kinds();
/// One sequence of `num_tokens` under that mask, with kHeads heads.
[[nodiscard]] AttentionCase masked_case(std::string name, const MaskKind& kind, int dim,
                                        std::int64_t num_tokens);

}  // namespace sightline::bench
