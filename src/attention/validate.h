// The checks of a call, each naming function, argument, expected and got.
#pragma once

#include "sightline/attention/attention.h"

namespace sightline {

[[nodiscard]] Result<void> validate_batch(const char* function, const AttentionSpec& spec,
                                          const QueryBatch& queries, const AttentionExtras& extras);
/// Offsets and lengths of caller's arrays, not their data.
[[nodiscard]] Result<void> validate_coords(const char* function, const QueryBatch& queries,
                                           const ContiguousKv& kv);
[[nodiscard]] Result<void> validate_views(const char* function, const AttentionSpec& spec,
                                          const QueryBatch& queries, const PagedKv& kv);
/// Shapes of the arrays of one attention_forward.
struct ForwardArrays {
  StridedView<const float, 3> q;
  StridedView<float, 3> out;
  StridedView<float, 2> lse;
};
[[nodiscard]] Result<void> validate_arrays(const char* function, const AttentionSpec& spec,
                                           std::int64_t num_q_tokens, std::int64_t max_kv_rows,
                                           const ForwardArrays& arrays, const AttentionExtras& extras);
[[nodiscard]] Result<void> validate_kv_arrays(const char* function, const AttentionSpec& spec,
                                              const ContiguousKv& kv);

}  // namespace sightline
