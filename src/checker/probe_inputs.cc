#include "checker/probe_inputs.h"

#include <algorithm>

namespace sightline::checker {

std::vector<TokenCoord> lay_out(const TokenLayout& layout) {
  const std::int64_t first = layout.num_front_pads;
  std::vector<TokenCoord> coords = coords_range(-first, layout.num_tokens - first);
  auto next = layout.document_begins.begin();
  std::int64_t document = 0, begin = first;
  for (std::int64_t i = 0; i < layout.num_tokens; ++i) {
    TokenCoord& coord = coords[static_cast<std::size_t>(i)];
    coord.valid = i >= first && i < layout.num_tokens - layout.num_back_pads;
    if (next != layout.document_begins.end() && *next == i) {
      ++document;
      begin = i;
      ++next;
    }
    coord.segment = static_cast<decltype(coord.segment)>(document);
    coord.segment_start = document == 0 ? 0 : begin - first;
    coord.span = i >= begin + 2 && i < begin + 5 ? 1 : 0;
  }
  return coords;
}

std::vector<double> draw(Rng& rng, ElementType type, std::int64_t count, double size) {
  std::vector<double> x(static_cast<std::size_t>(count));
  for (double& y : x) y = round_to(type, size * rng.next_normal());
  return x;
}

void draw_inputs(Rng& rng, double loudness, Observation& o) {
  const HeadSpec& heads = o.spec.heads;
  o.q = draw(rng, o.type, o.q_len() * heads.num_q_heads * heads.qk_head_dim, 1.5 * loudness);
  o.k = draw(rng, o.type, o.kv_len() * heads.num_kv_heads * heads.qk_head_dim);
  o.v = draw(rng, o.type, o.kv_len() * heads.num_kv_heads * heads.v_head_dim);
}

void draw_upstream(Rng& rng, Observation& o) {
  const HeadSpec& heads = o.spec.heads;
  o.d_out = draw(rng, o.type, o.q_len() * heads.num_q_heads * heads.v_head_dim);
}

}  // namespace sightline::checker
