// The meaning of a cache: a list of steps, played by a plain list in reference/ and by the real cache.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/json.h"
#include "sightline/spec/coords.h"

namespace sightline {

/// Appends tokens to a sequence: keys and values [num_tokens, num_kv_heads, dim] are given beside the trace.
/// Padding takes no ordinal and is not kept.
struct TraceAppend {
  int sequence = 0;
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos;  ///< empty: equal to pos
  bool operator==(const TraceAppend&) const = default;
};
/// Attends with queries [num_tokens, num_q_heads, dim] to all that the sequence holds.
struct TraceQuery {
  int sequence = 0;
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos;  ///< empty: equal to pos
  bool operator==(const TraceQuery&) const = default;
};
/// Drops every token with ordinal >= num_tokens (rejected drafts).
struct TraceTruncate {
  int sequence = 0;
  std::int64_t num_tokens = 0;
  bool operator==(const TraceTruncate&) const = default;
};
/// Drops tokens with ordinals [begin, end). Storage only: ordinals and positions of the others stay.
struct TraceEvict {
  int sequence = 0;
  std::int64_t begin = 0, end = 0;
  bool operator==(const TraceEvict&) const = default;
};
/// Moves tokens with ordinals [begin, end): pos, segment_start and rope_pos += delta, keys re-rotated by
/// exactly delta.
struct TraceShift {
  int sequence = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t delta = 0;
  bool rerotate = true;  ///< false is a fault: the counter moves and the key does not
  bool operator==(const TraceShift&) const = default;
};
/// Makes sequence `to` a copy of `from`.
struct TraceFork {
  int from = 0, to = 0;
  bool operator==(const TraceFork&) const = default;
};

using TraceStep = std::variant<TraceAppend, TraceQuery, TraceTruncate, TraceEvict, TraceShift, TraceFork>;
struct Trace {
  std::vector<TraceStep> steps;
  bool operator==(const Trace&) const = default;
};

[[nodiscard]] Json to_json(const Trace& trace);
[[nodiscard]] Result<Trace> trace_from_json(const Json& json);

}  // namespace sightline
