// The checks of a call, each naming function, argument, expected and got.
#pragma once

#include <array>

#include "sightline/attention/attention.h"

namespace sightline {

[[nodiscard]] Result<void> validate_batch(const char* function, const AttentionSpec& spec,
                                          const QueryBatch& queries, const AttentionExtras& extras);
/// Offsets and lengths of caller's arrays, not their data.
[[nodiscard]] Result<void> validate_coords(const char* function, const QueryBatch& queries,
                                           const ContiguousKv& kv);
[[nodiscard]] Result<void> validate_views(const char* function, const AttentionSpec& spec,
                                          const QueryBatch& queries, const PagedKv& kv);
/// Errors: the plan was made for another spec, batch or storage (kInvalidArgument).
[[nodiscard]] Result<void> check_plan(const char* function, const AttentionSpec& spec,
                                      const AttentionPlan::Impl& plan, const QueryBatch& queries, bool paged);
/// The arrays of one call by query token: shapes, and that there is data; lse may have none.
struct TokenArrays {
  StridedView<const float, 3> q;
  StridedView<const float, 3> out;
  StridedView<const float, 2> lse;
};
/// `max_kv_rows`: of one sequence, the columns of a bias.
[[nodiscard]] Result<void> validate_arrays(const char* function, const AttentionSpec& spec,
                                           std::int64_t num_q_tokens, std::int64_t max_kv_rows,
                                           const TokenArrays& arrays, const AttentionExtras& extras);
/// Everything of a call on caller's arrays but what is its own: batch, coordinates, plan, arrays, k and v.
[[nodiscard]] Result<void> validate_contiguous(const char* function, const AttentionSpec& spec,
                                               const AttentionPlan& plan, const QueryBatch& queries,
                                               const ContiguousKv& kv, const TokenArrays& arrays,
                                               const AttentionExtras& extras);

template <std::size_t Rank>
[[nodiscard]] Result<void> check_shape(const char* function, const char* name,
                                       const std::array<std::int64_t, Rank>& got,
                                       const std::array<std::int64_t, Rank>& expected) {
  if (got == expected) return {};
  return fail(ErrorKind::kInvalidArgument, "{}: {} has shape [{}], expected [{}]", function, name,
              fmt::join(got, ", "), fmt::join(expected, ", "));
}

}  // namespace sightline
