#include "attention/validate.h"

#include <algorithm>
#include <span>

#include "attention/plan.h"

namespace sightline {

namespace {

// Ascending from 0 to num_tokens; a sequence may be empty where the caller allows it.
Result<void> check_offsets(const char* function, const char* name, std::span<const std::int64_t> offsets,
                           std::size_t num_tokens, bool may_be_empty) {
  if (offsets.size() < 2) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} has {} entries, expected num_sequences + 1 >= 2",
                function, name, offsets.size());
  }
  if (offsets.front() != 0 || offsets.back() != static_cast<std::int64_t>(num_tokens)) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} runs from {} to {}, expected 0 to {} (the coords)",
                function, name, offsets.front(), offsets.back(), num_tokens);
  }
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1] || (offsets[i] == offsets[i - 1] && !may_be_empty)) {
      return fail(ErrorKind::kInvalidArgument, "{}: {}[{}] = {} after {}: sequence {} has no token", function,
                  name, i, offsets[i], offsets[i - 1], i - 1);
    }
  }
  return {};
}

Result<void> check_count(const char* function, const char* name, std::size_t got, std::size_t expected) {
  if (got == 0 || got == expected) return {};
  return fail(ErrorKind::kInvalidArgument, "{}: {} has {} entries, expected {} or none", function, name, got,
              expected);
}

}  // namespace

Result<void> validate_batch(const char* function, const AttentionSpec& spec, const QueryBatch& queries,
                            const AttentionExtras& extras) {
  if (auto valid = validate(spec); !valid) {
    return fail(valid.error().kind, "{}: spec: {}", function, valid.error().message);
  }
  if (spec.rope.length_policy == RopeLengthPolicy::kCurrentLength) {
    return fail(
        ErrorKind::kInvalidArgument,
        "{}: rope.length_policy = current_length, expected fixed_at_start (only the oracle follows the "
        "current length)",
        function);
  }
  SIGHTLINE_CHECK(
      check_offsets(function, "queries.q_offsets", queries.q_offsets, queries.coords.size(), false));
  SIGHTLINE_CHECK(check_count(function, "queries.rope_pos", queries.rope_pos.size(), queries.coords.size()));
  const std::size_t num_sequences = queries.q_offsets.size() - 1;
  if (extras.tables.size() > 1 && extras.tables.size() != num_sequences) {
    return fail(ErrorKind::kInvalidArgument, "{}: extras.tables has {} entries, expected 0, 1 or {}",
                function, extras.tables.size(), num_sequences);
  }
  return {};
}

Result<void> validate_coords(const char* function, const QueryBatch& queries, const ContiguousKv& kv) {
  SIGHTLINE_CHECK(check_offsets(function, "kv.kv_offsets", kv.kv_offsets, kv.coords.size(), true));
  if (kv.kv_offsets.size() != queries.q_offsets.size()) {
    return fail(ErrorKind::kInvalidArgument, "{}: kv.kv_offsets has {} entries, expected {} (as q_offsets)",
                function, kv.kv_offsets.size(), queries.q_offsets.size());
  }
  SIGHTLINE_CHECK(check_count(function, "kv.rope_pos", kv.rope_pos.size(), kv.coords.size()));
  return check_count(function, "kv.ordinals", kv.ordinals.size(), kv.coords.size());
}

Result<void> validate_views(const char* function, const AttentionSpec& spec, const QueryBatch& queries,
                            const PagedKv& kv) {
  if (kv.views.size() + 1 != queries.q_offsets.size()) {
    return fail(ErrorKind::kInvalidArgument, "{}: kv.views has {} entries, expected {}", function,
                kv.views.size(), queries.q_offsets.size() - 1);
  }
  for (std::size_t s = 0; s < kv.views.size(); ++s) {
    const KvView& view = kv.views[s];
    const PageLayout& layout = view.layout;
    if (layout.page_size < kPageLanes || layout.page_size % kPageLanes != 0) {
      return fail(ErrorKind::kInvalidArgument,
                  "{}: views[{}].layout.page_size = {}, expected a multiple of {}", function, s,
                  layout.page_size, kPageLanes);
    }
    if (layout.qk_head_dim != spec.heads.qk_head_dim || layout.v_head_dim != spec.heads.v_head_dim ||
        view.num_kv_heads != spec.heads.num_kv_heads) {
      return fail(ErrorKind::kInvalidArgument,
                  "{}: views[{}] holds {} heads of {} and {}, expected num_kv_heads = {}, qk_head_dim = {}, "
                  "v_head_dim = {}",
                  function, s, view.num_kv_heads, layout.qk_head_dim, layout.v_head_dim,
                  spec.heads.num_kv_heads, spec.heads.qk_head_dim, spec.heads.v_head_dim);
    }
    const std::int64_t num_pages = (view.num_slots + layout.page_size - 1) / layout.page_size;
    const auto entries = static_cast<std::size_t>(num_pages * view.num_kv_heads);
    if (view.num_slots < 0 || view.coords.size() < static_cast<std::size_t>(view.num_slots) ||
        view.rope_pos.size() < static_cast<std::size_t>(view.num_slots) || view.pages.size() < entries) {
      return fail(ErrorKind::kInvalidArgument,
                  "{}: views[{}]: num_slots = {} with {} coords, {} rope_pos and {} pages, expected {} pages",
                  function, s, view.num_slots, view.coords.size(), view.rope_pos.size(), view.pages.size(),
                  entries);
    }
  }
  return {};
}

Result<void> check_plan(const char* function, const AttentionSpec& spec, const AttentionPlan::Impl& plan,
                        const QueryBatch& queries, bool paged) {
  if (!(plan.heads == spec.heads)) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for other heads than spec.heads", function);
  }
  if (!(plan.mask == spec.mask)) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for mask {}, expected {}", function,
                to_string(plan.mask), to_string(spec.mask));
  }
  if (plan.position_policy != spec.rope.position_policy) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for another rope.position_policy", function);
  }
  if (plan.paged != paged) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for {} keys, got {}", function,
                plan.paged ? "paged" : "contiguous", paged ? "paged" : "contiguous");
  }
  if (!std::ranges::equal(plan.q_offsets, queries.q_offsets)) {
    return fail(ErrorKind::kInvalidArgument,
                "{}: plan was made for {} query tokens in {} sequences, got {} in {}", function,
                plan.num_q_tokens, plan.num_sequences, queries.coords.size(), queries.q_offsets.size() - 1);
  }
  return {};
}

Result<void> validate_arrays(const char* function, const AttentionSpec& spec, std::int64_t num_q_tokens,
                             std::int64_t max_kv_rows, const TokenArrays& arrays,
                             const AttentionExtras& extras) {
  const HeadSpec& heads = spec.heads;
  SIGHTLINE_CHECK(
      (check_shape<3>(function, "q", arrays.q.shape, {num_q_tokens, heads.num_q_heads, heads.qk_head_dim})));
  SIGHTLINE_CHECK((check_shape<3>(function, "out", arrays.out.shape,
                                  {num_q_tokens, heads.num_q_heads, heads.v_head_dim})));
  if (arrays.lse.data != nullptr) {
    SIGHTLINE_CHECK((check_shape<2>(function, "lse", arrays.lse.shape, {num_q_tokens, heads.num_q_heads})));
  }
  if (arrays.q.data == nullptr || arrays.out.data == nullptr) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} has no data", function,
                arrays.q.data == nullptr ? "q" : "out");
  }
  if (extras.bias.data != nullptr) {
    SIGHTLINE_CHECK((check_shape<3>(function, "extras.bias", extras.bias.shape,
                                    {heads.num_q_heads, num_q_tokens, max_kv_rows})));
  }
  return {};
}

namespace {

Result<void> validate_kv_arrays(const char* function, const AttentionSpec& spec, const ContiguousKv& kv) {
  const auto num_kv_tokens = static_cast<std::int64_t>(kv.coords.size());
  SIGHTLINE_CHECK((check_shape<3>(function, "kv.k", kv.k.shape,
                                  {num_kv_tokens, spec.heads.num_kv_heads, spec.heads.qk_head_dim})));
  SIGHTLINE_CHECK((check_shape<3>(function, "kv.v", kv.v.shape,
                                  {num_kv_tokens, spec.heads.num_kv_heads, spec.heads.v_head_dim})));
  if (num_kv_tokens > 0 && (kv.k.data == nullptr || kv.v.data == nullptr)) {
    return fail(ErrorKind::kInvalidArgument, "{}: kv.{} has no data", function,
                kv.k.data == nullptr ? "k" : "v");
  }
  return {};
}

}  // namespace

Result<void> validate_contiguous(const char* function, const AttentionSpec& spec, const AttentionPlan& plan,
                                 const QueryBatch& queries, const ContiguousKv& kv, const TokenArrays& arrays,
                                 const AttentionExtras& extras) {
  SIGHTLINE_CHECK(validate_batch(function, spec, queries, extras));
  SIGHTLINE_CHECK(validate_coords(function, queries, kv));
  SIGHTLINE_CHECK(check_plan(function, spec, plan.impl(), queries, false));
  if (!std::ranges::equal(plan.impl().kv_offsets, kv.kv_offsets)) {
    return fail(ErrorKind::kInvalidArgument, "{}: plan was made for other kv_offsets", function);
  }
  std::int64_t max_rows = 0;
  for (std::size_t s = 1; s < kv.kv_offsets.size(); ++s) {
    max_rows = std::max(max_rows, kv.kv_offsets[s] - kv.kv_offsets[s - 1]);
  }
  SIGHTLINE_CHECK(validate_arrays(function, spec, plan.impl().num_q_tokens, max_rows, arrays, extras));
  return validate_kv_arrays(function, spec, kv);
}

}  // namespace sightline
