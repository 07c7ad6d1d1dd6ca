// Sequences of one length each from Python as one call of the engine, or as several where their rows do not
// lie one after the other. Shared by forward and backward.
#pragma once

#include "arrays.h"
#include "bind.h"
#include "sightline/attention/attention.h"

namespace sightline::python {

/// Sequences of one length each for queries and keys, as they came.
struct Batch {
  const Rows& q;
  const Rows& k;
  const Rows& v;
  const Tokens& q_tokens;
  const Tokens& kv_tokens;
  StridedView<const float, 4> bias{};  ///< [batch, num_q_heads, q_len, kv_len] or no data
  std::vector<MaskTables> tables;      ///< none or one a sequence
  std::int64_t rope_length = 0;

  /// Checks that q, k and v have sequences of the same number and keys of the same length.
  Batch(const Rows& q_rows, const Rows& k_rows, const Rows& v_rows, const Tokens& of_q, const Tokens& of_kv,
        const std::optional<AnyArray>& bias_array, const std::optional<AnyArray>& dense, std::int64_t length);
};

/// Sequences [first, first + count) in one call; more than one only where their rows lie one after the other.
struct Group {
  std::int64_t first = 0;
  std::int64_t count = 1;
  StridedView<const float, 3> q, k, v, bias;
};
/// All sequences as one group where strides allow it (a bias that has to be apart: `one_by_one`), else one
/// each.
[[nodiscard]] std::vector<Group> groups_of(const Batch& batch, bool one_by_one = false);

/// The arguments of one call; points into itself, the batch and the group.
struct EngineCall {
  EngineCall(const Batch& batch, const Group& group);
  EngineCall(const EngineCall&) = delete;
  std::int64_t first_q = 0, num_q = 0;    ///< rows of queries, over all sequences
  std::int64_t first_kv = 0, num_kv = 0;  ///< rows of keys
  std::vector<std::int64_t> q_offsets, kv_offsets;
  QueryBatch queries;
  ContiguousKv kv;
  AttentionExtras extras;
};

}  // namespace sightline::python
