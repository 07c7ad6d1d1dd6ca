// The smallest cache that tests of this folder use: one layer, one key head, free slots poisoned.
#pragma once

#include <cstdint>
#include <vector>

#include "sightline/kv_cache/kv_cache.h"

namespace sightline::test {

inline KvCacheOptions poisoned(int page_size = 16, std::int64_t max_pages = 0) {
  KvCacheOptions options;
  options.page_size = page_size;
  options.max_pages = max_pages;
  options.poison = true;
  return options;
}

/// One layer, one key head of width 2, no rotation.
inline std::vector<AttentionSpec> tiny_layer(const MaskSpec& mask = mask_rule(MaskOp::kCausal)) {
  AttentionSpec spec;
  spec.heads = {1, 1, 2, 2};
  spec.mask = mask;
  return {spec};
}

inline MaskSpec window(std::int64_t n) { return mask_rule(MaskOp::kCausal) & mask_rule(MaskOp::kWindow, n); }

}  // namespace sightline::test
