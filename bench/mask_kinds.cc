#include "bench/mask_kinds.h"

#include <algorithm>
#include <cmath>

#include "sightline/base/rng.h"

namespace sightline::bench {

namespace {

// Documents of log-normal lengths with a mean of about 512.
void mark_documents(std::span<TokenCoord> tokens) {
  Rng rng(7);
  std::size_t begin = 0;
  for (int document = 0; begin < tokens.size(); ++document) {
    const double length = std::exp(std::log(512.0) - 0.32 + 0.8 * rng.next_normal());  // sigma 0.8
    const std::size_t end = std::min(tokens.size(), begin + static_cast<std::size_t>(std::max(length, 16.0)));
    for (std::size_t i = begin; i < end; ++i) {
      tokens[i].segment = document;
      tokens[i].segment_start = static_cast<std::int64_t>(begin);
    }
    begin = end;
  }
}

// The first quarter sees itself in both directions.
void mark_prefix(std::span<TokenCoord> tokens) {
  for (TokenCoord& token : tokens.first(tokens.size() / 4)) token.span = 1;
}

constexpr MaskKind kMaskKinds[] = {
    {"window256", "causal & window(256)", nullptr},
    {"window1024", "causal & window(1024)", nullptr},
    {"documents", "causal & segment", mark_documents},
    {"prefix", "causal | span", mark_prefix},
    {"documents-window256", "causal & segment & window(256)", mark_documents},
    {"window256-first4", "causal & (window(256) | first(4))", nullptr},
};

}  // namespace

std::span<const MaskKind> mask_kinds() { return kMaskKinds; }

AttentionCase masked_case(std::string name, const MaskKind& kind, int dim, std::int64_t num_tokens) {
  AttentionCase c = self_attention(std::move(name), kind.mask, kHeads, dim, num_tokens);
  if (kind.mark != nullptr) c.mark = kind.mark;
  return c;
}

}  // namespace sightline::bench
