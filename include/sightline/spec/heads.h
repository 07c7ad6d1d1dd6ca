// Query heads and key/value heads: different counts, one map between them.
#pragma once

#include <cstdint>

#include "sightline/base/error.h"

namespace sightline {

/// Head counts and widths of one attention layer. MHA: num_kv_heads = num_q_heads; MQA: 1; GQA: between.
struct HeadSpec {
  int num_q_heads = 1;
  int num_kv_heads = 1;  ///< divides num_q_heads
  int qk_head_dim = 64;  ///< width of one query and one key head
  int v_head_dim = 64;   ///< width of one value head; may differ

  bool operator==(const HeadSpec&) const = default;
  /// Query heads that read one key head.
  [[nodiscard]] constexpr int group_size() const { return num_q_heads / num_kv_heads; }
};

/// The key head that query head `q_head` reads: q_head / group_size. Groups are consecutive.
/// Source: GQA, arXiv:2305.13245.
[[nodiscard]] constexpr int kv_head_for(const HeadSpec& heads, int q_head) {
  return q_head / heads.group_size();
}

/// Errors (kInvalidArgument): a count or width below 1, num_kv_heads that does not divide num_q_heads,
/// a width over 4096.
[[nodiscard]] Result<void> validate(const HeadSpec& heads);

}  // namespace sightline
