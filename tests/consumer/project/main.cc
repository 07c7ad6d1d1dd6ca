// Uses the core as a stranger would: public headers, one target.
#include <cstdio>

#include "sightline/spec/mask.h"

int main() {
  const auto mask = sightline::parse_mask("causal & window(4)");
  if (!mask) return 1;
  const auto q = sightline::coords_range(3, 5);
  const auto kv = sightline::coords_range(0, 5);
  std::fputs(sightline::draw(*mask, {}, q, kv).c_str(), stdout);
  return 0;
}
