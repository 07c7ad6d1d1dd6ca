// A batch of sequences for the tests of attention, and the four ways to compute it: the engine on caller's
// arrays, the engine on pages, the float64 oracle and plain f32 code.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sightline/attention/attention.h"
#include "sightline/base/half.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline::test {

struct Batch {
  AttentionSpec spec;
  std::vector<std::int64_t> q_offsets{0};
  std::vector<std::int64_t> kv_offsets{0};
  std::vector<TokenCoord> q_coords;
  std::vector<TokenCoord> kv_coords;
  std::vector<std::int64_t> q_rope_pos;   // empty: pos
  std::vector<std::int64_t> kv_rope_pos;  // empty: pos
  std::vector<std::int64_t> ordinals;     // empty: ranks
  std::vector<float> q, k, v;
  std::vector<float> bias;  // [num_q_heads, num_q_tokens, max kv rows], empty: none
  std::vector<MaskTables> tables;

  [[nodiscard]] std::int64_t num_sequences() const { return static_cast<std::int64_t>(q_offsets.size()) - 1; }
  [[nodiscard]] std::int64_t num_q() const { return q_offsets.back(); }
  [[nodiscard]] std::int64_t num_kv() const { return kv_offsets.back(); }
  [[nodiscard]] std::int64_t max_kv() const;
};

struct Output {
  std::vector<float> out;  // [num_q, num_q_heads, v_head_dim]
  std::vector<float> lse;  // [num_q, num_q_heads]
  AttentionStats stats;

  [[nodiscard]] std::vector<float> row(const Batch& batch, std::int64_t q_row) const;  // outputs, then lse
};

AttentionSpec make_spec(int num_q_heads, int num_kv_heads, int qk_head_dim, int v_head_dim,
                        const std::string& mask = "causal");
// Adds a sequence of num_kv tokens whose last num_q are queries; data drawn from N(0, 1).
void add_sequence(Batch& batch, std::int64_t num_q, std::int64_t num_kv, std::uint64_t seed);
// The same with given coordinates.
void add_sequence(Batch& batch, const std::vector<TokenCoord>& q, const std::vector<TokenCoord>& kv,
                  std::uint64_t seed);
// Queries [q_begin, q_end) against keys [kv_begin, kv_end) of one sequence, as a batch of its own.
Batch slice(const Batch& batch, std::int64_t sequence, std::int64_t q_begin, std::int64_t q_end,
            std::int64_t kv_begin, std::int64_t kv_end);

struct RunOptions {
  const kernels::KernelTable* table = nullptr;
  int num_threads = 2;
};
Output run_contiguous(const Batch& batch, const RunOptions& options = {});

struct PageOptions {
  int page_size = 64;
  StorageType key_type = StorageType::kF32;
  StorageType value_type = StorageType::kF32;
  std::uint64_t shuffle_seed = 1;  // order of pages in memory
};
// Valid keys of each sequence in pages, one slot an ordinal (the batch's ordinals, or ranks by row);
// everything that holds no valid key is NaN.
Output run_paged(const Batch& batch, const PageOptions& pages = {}, const RunOptions& options = {});

// Rounds k (after rotation by the spec, or before) and v as pages of this type store them.
struct Wide {
  std::vector<double> out, lse;
  std::vector<double> scale;  // sum of P |v|, P after dropout, [num_q, num_q_heads, v_head_dim]
};
Wide oracle(const Batch& batch);
// The plain method in f32: scores, maximum, exponentials, sums, in this order and type.
Output plain(const Batch& batch);

// Design 5.3: errors of a row over its sum of P|v|; the largest must not pass twice that of the plain
// method plus the rounding of a number near the result. Also the lse, absolute over 1 + |lse|.
::testing::AssertionResult within_error_rule(const Batch& batch, const Output& got);

::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace sightline::test
