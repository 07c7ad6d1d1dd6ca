// Plays a Trace with a plain list of tokens: what a cache means, without pages, sharing or storage types.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/reference/attention.h"
#include "sightline/spec/trace.h"

namespace sightline::reference {

/// The numbers that a step needs: k and v for an append, q for a query, nothing for the others.
struct TraceStepData {
  StridedView<const double, 3> q;  ///< [num_tokens, num_q_heads, qk_head_dim], before rotation
  StridedView<const double, 3> k;  ///< [num_tokens, num_kv_heads, qk_head_dim], before rotation
  StridedView<const double, 3> v;  ///< [num_tokens, num_kv_heads, v_head_dim]
};

/// One token of the list. Its key is kept before rotation, together with the rotation it has undergone.
struct StoredToken {
  std::int64_t ordinal = 0;
  TokenCoord coord;
  std::int64_t rope_pos = 0;     ///< where its key belongs
  std::int64_t turned_to = 0;    ///< where its key has really been rotated to
  std::int64_t rope_length = 0;  ///< the length whose frequencies turned it, under kCurrentLength
  std::vector<double> k;         ///< [num_kv_heads, qk_head_dim]
  std::vector<double> v;         ///< [num_kv_heads, v_head_dim]
};

/// Sequences as lists, changed by the steps of a trace.
///
/// Every appended valid token takes the next ordinal of its sequence; padding takes none and is not kept. A
/// shift moves pos,
/// segment_start and rope_pos; under CacheStage::kBeforeRotation keys are rotated when read, so that
/// `rerotate` means nothing there. Under kCurrentLength and kAfterRotation a key keeps the frequencies of
/// the length at its append (1 + the largest rope_pos of a valid token then): it goes stale, as in programs
/// that do so. The list frees nothing by itself: a cache whose windowed layer has freed pages refuses a
/// truncate that this one plays.
class TracePlayer {
 public:
  /// `rope_length`: as in AttentionInputs. Masks with `dense` or `tree` are refused: a trace has no tables.
  [[nodiscard]] static Result<TracePlayer> create(AttentionSpec spec, std::int64_t rope_length,
                                                  Deviation deviation = {});

  /// Plays one step; the outputs of a query, nothing for the others. On error nothing has changed.
  /// Errors (kInvalidArgument): an unknown sequence (an append opens one), an ordinal outside [0, length],
  /// shapes that do not fit, a shift beyond 2^53.
  [[nodiscard]] Result<AttentionOutputs> play(const TraceStep& step, const TraceStepData& data,
                                              Keep keep = {});

  /// Ordinals opened so far in a sequence; 0 for an unknown one.
  [[nodiscard]] std::int64_t length(int sequence) const;
  /// The tokens it holds, in order of ordinals.
  [[nodiscard]] std::span<const StoredToken> tokens(int sequence) const;

 private:
  struct Sequence {
    std::int64_t length = 0;
    std::int64_t num_before = 0;  ///< tokens held before the last append
    std::vector<StoredToken> tokens;
  };
  TracePlayer(AttentionSpec spec, std::int64_t rope_length, Deviation deviation);

  Result<void> append(const TraceAppend& step, const TraceStepData& data);
  Result<AttentionOutputs> query(const TraceQuery& step, const TraceStepData& data, Keep keep) const;
  Result<void> truncate(const TraceTruncate& step);
  Result<void> evict(const TraceEvict& step);
  Result<void> shift(const TraceShift& step);
  Result<void> fork(const TraceFork& step);
  Result<Sequence*> find(int sequence, const char* step);
  Result<void> check_range(const Sequence& sequence, std::int64_t begin, std::int64_t end,
                           const char* step) const;

  AttentionSpec spec_;
  std::int64_t rope_length_ = 0;
  Deviation deviation_;
  std::map<int, Sequence> sequences_;
};

/// Plays a whole trace; one entry a step, empty but for queries. `data` [steps].
/// Errors: as TracePlayer, with the number of the step.
[[nodiscard]] Result<std::vector<AttentionOutputs>> play_trace(const AttentionSpec& spec, const Trace& trace,
                                                               std::span<const TraceStepData> data,
                                                               std::int64_t rope_length = 0,
                                                               const Deviation& deviation = {});

}  // namespace sightline::reference
