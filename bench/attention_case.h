// An attention call to be timed: its arrays, its plan, its storage, and the check of its result against the
// float64 oracle. Rows of all attention families are made of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"
#include "sightline/attention/attention.h"
#include "sightline/kernels/page_layout.h"

namespace sightline::bench {

/// One sequence: its last `num_q` tokens ask, all of its `num_kv` tokens are keys.
struct CaseSequence {
  std::int64_t num_q = 0;
  std::int64_t num_kv = 0;
};

/// Keys and values in pages of a cache instead of arrays.
struct CaseCache {
  StorageType type = StorageType::kF32;
  /// More than 0: copies of the caches are read in rotation, so many that they have these bytes in all.
  std::size_t rotation_bytes = 0;
};

struct AttentionCase {
  std::string name;
  AttentionSpec spec;
  std::vector<CaseSequence> sequences;
  /// Sets segments, spans and flags of one sequence's tokens; null: one segment from position 0.
  std::function<void(std::span<TokenCoord>)> mark;
  std::vector<std::uint8_t> dense;  ///< [num_q, num_kv] of the only sequence, for masks with `dense`
  std::optional<CaseCache> cache;
};

/// Of rows that do not group heads.
inline constexpr int kHeads = 4;

/// One sequence of `num_tokens` with `num_heads` heads for queries and keys.
[[nodiscard]] AttentionCase self_attention(std::string name, const std::string& mask, int num_heads, int dim,
                                           std::int64_t num_tokens);

/// The parts of a call from arrays, for those who call something else than the forward with them.
struct CaseViews {
  QueryBatch queries;
  ContiguousKv kv;
  const AttentionExtras* extras = nullptr;
  const AttentionPlan* plan = nullptr;
  StridedView<const float, 3> q;
  StridedView<float, 3> out;
  MaskTables tables;
};

class AttentionBody {
 public:
  /// Draws the arrays, fills the caches and plans. `bench` must outlive the body.
  [[nodiscard]] static Result<std::unique_ptr<AttentionBody>> make(const Bench& bench, AttentionCase c);
  ~AttentionBody();

  /// One forward (of the next copy, where caches rotate); the calls that `make` planned cannot fail.
  void run();
  /// Plans the call anew and drops the plan.
  void plan() const;
  /// Runs once and holds sampled rows against the oracle by the error rule (design 5.3); says what it found.
  [[nodiscard]] Result<std::string> check();
  [[nodiscard]] const AttentionCase& get_case() const;
  [[nodiscard]] CaseViews views();
  [[nodiscard]] AttentionContext& context();
  /// Floating point operations of the visible pairs.
  [[nodiscard]] double work() const;
  [[nodiscard]] std::int64_t pairs_visible() const;
  [[nodiscard]] std::int64_t pairs_computed() const;
  /// Visible pairs over all pairs.
  [[nodiscard]] double density() const;
  /// Bytes of keys and values that one run reads, caches only; and of all copies.
  [[nodiscard]] std::int64_t cache_bytes() const;
  [[nodiscard]] int num_copies() const;
  /// Shapes in words.
  [[nodiscard]] std::string what() const;

 private:
  struct Impl;
  explicit AttentionBody(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The row of `body` before it is measured: checked, its shapes and then `more` in words; no work yet.
[[nodiscard]] Result<Row> checked_row(AttentionBody& body, Limit limit, std::string_view more = {});
/// A row that runs `c` alone, as a fraction of the f32 peak.
[[nodiscard]] Result<void> run_attention_case(const Bench& bench, const AttentionCase& c);
/// A row that runs `c` beside `reference`: time over `share` times the reference's, `share` 0: the ratio of
/// their visible pairs. The result of `c` is checked.
struct AttentionPair {
  AttentionCase c;
  AttentionCase reference;
  double share = 0.0;
  bool is_speed = false;
  std::string what;  ///< of the ratio, in words
};
[[nodiscard]] Result<void> run_attention_pair(const Bench& bench, const AttentionPair& pair);

}  // namespace sightline::bench
