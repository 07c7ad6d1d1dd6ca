// One sequence of a batch as its three computations see it; shared by the tests of forward and backward.
#pragma once

#include "attention/batch.h"
#include "sightline/reference/attention.h"

namespace sightline::test {

struct SequenceRange {
  std::int64_t q0, q1, k0, k1;
};
SequenceRange range_of(const Batch& batch, std::int64_t sequence);
MaskTables tables_of(const Batch& batch, std::int64_t sequence);

/// In float64, as the oracle takes it. Points into itself and the batch.
struct WideSequence {
  WideSequence(const Batch& batch, std::int64_t sequence);
  WideSequence(const WideSequence&) = delete;
  std::vector<double> q, k, v, bias;
  std::vector<std::int64_t> q_rope_pos, kv_rope_pos;
  reference::AttentionInputs inputs;
};

/// One row of the plain f32 method: scores, maximum, exponentials and sums, in this order and type.
struct PlainRow {
  std::vector<std::int64_t> seen;  ///< visible key rows
  std::vector<float> q;            ///< rotated
  std::vector<float> logits;
  std::vector<float> cap_slope;  ///< derivative of the softcap
  std::vector<float> p;          ///< e^(logit - max), before the division by sum
  std::vector<float> kept;       ///< 0 or 1 / (1 - rate); 1 without dropout
  float max = 0.0F;
  float sum = 0.0F;        ///< with the sink
  std::vector<float> out;  ///< [v_head_dim]
  [[nodiscard]] float lse() const;
};

/// The rows of one sequence. In-cache positions meet first keys with a query of their own, which `q` is not.
class PlainSequence {
 public:
  PlainSequence(const Batch& batch, std::int64_t sequence);
  /// Query `i` of the batch, head `h`.
  [[nodiscard]] PlainRow row(std::int64_t i, int h) const;
  /// Rotated key of key row j of the batch.
  [[nodiscard]] const std::vector<float>& key(std::int64_t j, int kv_head) const;

 private:
  const Batch& batch_;
  SequenceRange range_;
  MaskTables tables_;
  std::vector<std::vector<float>> keys_;
};

/// Rotates one head (or, with -1, back) as the batch's spec says, in f32.
std::vector<float> rotate(const RopeSpec& rope, std::vector<float> head, std::int64_t pos,
                          float direction = 1.0F);

/// The largest error over its scale must not pass `factor` times that of the plain method plus the rounding
/// of a number near the result.
::testing::AssertionResult rule(const char* what, double factor, const std::vector<float>& got,
                                const std::vector<float>& plain, const std::vector<double>& ref,
                                const std::vector<double>& scale);

}  // namespace sightline::test
