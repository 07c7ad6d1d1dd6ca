// Attention on a mixed batch: validate -> plan -> run. Prefill, chunk and decode are one code path, from
// contiguous arrays and from cache pages. What is visible, which head, which score: spec/ and nowhere else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kv_cache/kv_view.h"
#include "sightline/spec/attention_spec.h"

namespace sightline {

namespace kernels {
struct KernelTable;
}

/// The queries of a mixed batch: sequences one after the other, q_offsets[s] .. q_offsets[s+1].
struct QueryBatch {
  std::span<const std::int64_t> q_offsets;  ///< [num_sequences + 1], ascending from 0
  std::span<const TokenCoord> coords;       ///< [num_q_tokens]
  std::span<const std::int64_t> rope_pos;   ///< [num_q_tokens], empty: equal to pos
};

/// Keys and values as caller's arrays: sequences one after the other.
struct ContiguousKv {
  std::span<const std::int64_t> kv_offsets;  ///< [num_sequences + 1]
  std::span<const TokenCoord> coords;        ///< [num_kv_tokens], any order (a ring is fine)
  std::span<const std::int64_t> rope_pos;    ///< [num_kv_tokens], empty: equal to pos
  /// Ordinal of each key in its own sequence (in its own segment when the mask implies segment); empty:
  /// its rank by pos among the valid keys. Give them when earlier keys were evicted.
  std::span<const std::int64_t> ordinals;
  StridedView<const float, 3>
      k;  ///< [num_kv_tokens, num_kv_heads, qk_head_dim], unrotated; head stride may be 0
  StridedView<const float, 3> v;  ///< [num_kv_tokens, num_kv_heads, v_head_dim]
};

/// Keys and values in cache pages: one view a sequence.
struct PagedKv {
  std::span<const KvView> views;  ///< [num_sequences]
};

/// Optional data of a call.
struct AttentionExtras {
  std::span<const MaskTables>
      tables;  ///< empty, one for all, or one a sequence; rows counted within the sequence
  /// Additive bias [num_q_heads, num_q_tokens, max key rows of a sequence], stride 0 broadcasts; minus
  /// infinity is invisible. Key column = row within the sequence (contiguous) or ordinal (paged).
  StridedView<const float, 3> bias{};
  std::int64_t rope_length = 0;  ///< as in rope_frequencies
};

/// What one call did; sums over all sequences and heads.
struct AttentionStats {
  std::int64_t pairs_visible = 0;   ///< (query, key) pairs the rule shows, times query heads
  std::int64_t pairs_computed = 0;  ///< pairs whose score was computed
  std::int64_t bytes_packed = 0;    ///< bytes of K and V brought to page layout in this call
  std::int64_t tiles_careful = 0;   ///< tiles that took the careful path
};

/// Threads, scratch and counters of a caller. Scratch grows to a high-water mark and is kept: no
/// allocation after warm-up. One call at a time.
class AttentionContext {
 public:
  /// `table`: the instruction set to use; null: kernels::active_table(). The pool must outlive the context.
  explicit AttentionContext(ThreadPool& pool, const kernels::KernelTable* table = nullptr);
  ~AttentionContext();
  AttentionContext(AttentionContext&&) noexcept;
  [[nodiscard]] ThreadPool& pool() const;
  [[nodiscard]] const AttentionStats& stats() const;  ///< of the last run
  [[nodiscard]] std::size_t scratch_bytes() const;
  struct Impl;
  [[nodiscard]] Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Scratch of one thread for layers with these heads: an upper bound that does not depend on context length.
/// Beside it a call keeps partial results of split items (few rows on long contexts) and, for contiguous
/// arrays, the packed keys and values.
[[nodiscard]] std::int64_t scratch_bytes_per_thread(const HeadSpec& heads);

/// Visibility and order of one batch for one mask; reusable for every layer and call with equal heads, mask,
/// position policy, tables, coordinates and storage shape. Holds copies, no views.
class AttentionPlan {
 public:
  AttentionPlan(AttentionPlan&&) noexcept;
  AttentionPlan& operator=(AttentionPlan&&) noexcept;
  ~AttentionPlan();
  struct Impl;
  explicit AttentionPlan(std::unique_ptr<Impl> impl);
  [[nodiscard]] const Impl& impl() const { return *impl_; }
  [[nodiscard]] std::size_t bytes() const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Plans a batch. Errors (kInvalidArgument): spec, offsets, a sequence without queries (without keys is
/// fine), tables, lengths of spans, positions outside [0, 2^31), ordinals that repeat.
[[nodiscard]] Result<AttentionPlan> plan_attention(const AttentionSpec& spec, const QueryBatch& queries,
                                                   const ContiguousKv& kv, const AttentionExtras& extras);
[[nodiscard]] Result<AttentionPlan> plan_attention(const AttentionSpec& spec, const QueryBatch& queries,
                                                   const PagedKv& kv, const AttentionExtras& extras);

/// Computes attention for every query and, if `lse` has data, the natural log-sum-exp of its scores.
///
///   out[i, h] = sum_j p[i, h, j] v[j, g],  p = softmax_j score(q[i, h] . k[j, g]),  g = kv_head_for(h)
///
///   q    [num_q_tokens, num_q_heads, qk_head_dim]  f32, unrotated
///   out  [num_q_tokens, num_q_heads, v_head_dim]   f32; must not overlap q or kv
///   lse  [num_q_tokens, num_q_heads]               f32 or no data
///
/// A query that sees no key: output exactly 0, lse its sink logit or minus infinity. Accumulation is f32; on
/// one instruction set each row is bit-identical for any batch, chunking, page size and thread count.
/// Errors (kInvalidArgument): shapes that do not match spec or plan. Nothing is written on error.
/// Cost: 2 * (qk_head_dim + v_head_dim) multiply-adds a visible pair and head; scratch from `context`.
/// Source: FlashAttention-2, arXiv:2307.08691, Algorithm 1.
[[nodiscard]] Result<void> attention_forward(const AttentionSpec& spec, const AttentionPlan& plan,
                                             StridedView<const float, 3> q, const QueryBatch& queries,
                                             const ContiguousKv& kv, const AttentionExtras& extras,
                                             StridedView<float, 3> out, StridedView<float, 2> lse,
                                             AttentionContext& context);
[[nodiscard]] Result<void> attention_forward(const AttentionSpec& spec, const AttentionPlan& plan,
                                             StridedView<const float, 3> q, const QueryBatch& queries,
                                             const PagedKv& kv, const AttentionExtras& extras,
                                             StridedView<float, 3> out, StridedView<float, 2> lse,
                                             AttentionContext& context);

}  // namespace sightline
