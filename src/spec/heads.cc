#include "sightline/spec/heads.h"

namespace sightline {

namespace {
constexpr int kMaxHeadDim = 4096;
constexpr int kMaxHeads = 1 << 16;
}  // namespace

Result<void> validate(const HeadSpec& heads) {
  struct Field {
    const char* name;
    int value, limit;
  };
  for (const auto& [name, value, limit] : {Field{"num_q_heads", heads.num_q_heads, kMaxHeads},
                                           Field{"num_kv_heads", heads.num_kv_heads, kMaxHeads},
                                           Field{"qk_head_dim", heads.qk_head_dim, kMaxHeadDim},
                                           Field{"v_head_dim", heads.v_head_dim, kMaxHeadDim}}) {
    if (value < 1 || value > limit) {
      return fail(ErrorKind::kInvalidArgument, "heads: {} = {}, expected 1 to {}", name, value, limit);
    }
  }
  if (heads.num_q_heads % heads.num_kv_heads != 0) {
    return fail(ErrorKind::kInvalidArgument,
                "heads: num_kv_heads = {}, which does not divide num_q_heads = {}", heads.num_kv_heads,
                heads.num_q_heads);
  }
  return {};
}

}  // namespace sightline
