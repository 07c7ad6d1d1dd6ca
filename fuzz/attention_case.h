// A small attention call drawn from bytes: spec, coordinates, tables. Numbers come from a seed beside them,
// so that one call can be repeated on others.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/batch.h"
#include "fuzz_input.h"
#include "spec/random_spec.h"

namespace sightline {

struct CaseSequence {
  std::vector<TokenCoord> q, kv;
  std::vector<std::int64_t> q_rope_pos, kv_rope_pos;  ///< empty: pos
  std::vector<std::int64_t> ordinals;                 ///< of each key row; those of invalid rows mean nothing
  std::shared_ptr<const testing::RandomTables> tables;
};

struct AttentionCase {
  AttentionSpec spec;
  std::vector<CaseSequence> sequences;
  /// False: the call leaves the ordinals to the engine, which ranks keys by pos.
  bool states_ordinals = false;
  bool has_bias = false;
  float factor = 1.0F;  ///< of queries and keys
  std::uint64_t seed = 0;

  /// `copies` times the sequences one after the other, each with numbers of its own; the first of any count
  /// of copies have the same.
  [[nodiscard]] test::Batch batch(int copies = 1) const;
  [[nodiscard]] bool uses_tables() const {
    return uses(spec.mask, MaskOp::kDense) || uses(spec.mask, MaskOp::kTree);
  }
  [[nodiscard]] bool has_invalid_keys() const;
};

[[nodiscard]] AttentionCase read_case(FuzzInput& in);

/// The ordinals that the engine gives where none are stated (`by_pos`), or those of storage order: ranks
/// among the valid keys of a sequence, or of a segment where the mask implies `segment`.
[[nodiscard]] std::vector<std::int64_t> rank_keys(const MaskSpec& mask, const std::vector<TokenCoord>& kv,
                                                  bool by_pos);

/// Queries `q_rows` of sequence `s` against keys `kv_rows`, in these orders, with ordinals stated.
[[nodiscard]] test::Batch select(const AttentionCase& from, const test::Batch& batch, std::size_t s,
                                 const std::vector<std::int64_t>& q_rows,
                                 const std::vector<std::int64_t>& kv_rows, std::vector<std::uint8_t>& dense,
                                 std::vector<std::int32_t>& nodes);

}  // namespace sightline
