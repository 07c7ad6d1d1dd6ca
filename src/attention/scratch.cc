// Sizes of a thread's scratch, in one place for calls and for the memory table.
#include <algorithm>

#include "attention/context.h"
#include "attention/plan.h"
#include "sightline/kernels/page_layout.h"

namespace sightline {

void ThreadScratch::reserve(const HeadSpec& heads, ScratchNeeds needs) {
  const auto dims = static_cast<std::size_t>(heads.qk_head_dim);
  const auto v_dims = static_cast<std::size_t>(PageLayout{.v_head_dim = heads.v_head_dim}.padded_v_dim());
  q.reserve_discard(kMaxRows * dims);
  q_first.reserve_discard(needs.has_first ? kMaxRows * dims : 0);
  head.reserve_discard(kTileKeys * std::max(dims, v_dims));
  scores.reserve_discard(kMaxRows * kTileKeys);
  scores_first.reserve_discard(needs.has_first ? kMaxRows * kTileKeys : 0);
  out.reserve_discard(kMaxRows * v_dims);
  total.reserve_discard(kMaxRows * v_dims);
  keys.reserve_discard(needs.is_paged ? kTileKeys * dims : 0);
  values.reserve_discard(needs.is_paged ? kTileKeys * v_dims : 0);
  sums.reserve_discard(kMaxRows * kernels::kMaxSumLanes);
  rows.reserve_discard(5 * kMaxRows);
  bias.reserve_discard(kTileKeys);
  words.reserve_discard(2 * kMaxRows);
  query_words.reserve_discard(2 * kMaxRows);
  cursors.reserve_discard(kMaxRows);
}

std::size_t ThreadScratch::bytes() const {
  std::size_t floats = 0;
  for (const auto* buffer :
       {&q, &q_first, &head, &scores, &scores_first, &out, &total, &keys, &values, &sums, &rows, &bias}) {
    floats += buffer->size();
  }
  return floats * sizeof(float) + (words.size() + query_words.size()) * sizeof(std::uint64_t) +
         cursors.size() * sizeof(std::int32_t);
}

std::int64_t scratch_bytes_per_thread(const HeadSpec& heads) {
  ThreadScratch scratch;
  scratch.reserve(heads, {});
  return static_cast<std::int64_t>(scratch.bytes());
}

}  // namespace sightline
