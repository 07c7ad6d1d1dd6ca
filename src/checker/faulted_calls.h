// The calls of an observation with faults planted in their coordinates, spec and arrays, ready for the
// oracle.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sightline/checker/observation.h"
#include "sightline/faults/fault_table.h"
#include "sightline/reference/attention.h"
#include "sightline/reference/misread.h"

namespace sightline::checker {

/// One call under the faults: its queries, and all keys that its cache holds.
struct FaultedCall {
  std::int64_t q_begin = 0, q_end = 0;  ///< rows of the observation
  std::int64_t num_keys = 0;
  CallCoords coords;  ///< of the queries
};

/// The observation's tokens as calls, with the faults that change coordinates planted in each.
class Calls {
 public:
  static Result<Calls> make(const Observation& o, std::span<const Fault> faults);

  [[nodiscard]] const std::vector<FaultedCall>& all() const { return calls_; }
  [[nodiscard]] const CallCoords& keys() const { return keys_; }
  [[nodiscard]] const std::vector<std::int64_t>& rope_lengths() const { return rope_lengths_; }
  /// Of all calls that appended keys, those after a given one too.
  [[nodiscard]] const std::vector<std::int64_t>& append_begins() const { return append_begins_; }

 private:
  Result<void> add(const Observation& o, std::int64_t begin, std::int64_t end, std::span<const Fault> faults);

  std::vector<FaultedCall> calls_;
  CallCoords keys_;
  std::int64_t rope_length_ = 0;            ///< of what has been appended so far
  std::vector<std::int64_t> rope_lengths_;  ///< of each key, when it was appended
  std::vector<std::int64_t> append_begins_;
  bool changed_ = false;
};

/// Everything that an observation with these faults depends on.
struct Faulted {
  AttentionSpec spec;
  reference::Deviation deviation;
  Calls calls;
  std::optional<reference::MisreadInputs> rearranged;  ///< whole arrays, where features stand elsewhere
};

/// Errors (kInvalidArgument): a fault that cannot show in this observation.
[[nodiscard]] Result<Faulted> plant_all(const Observation& o, std::span<const Fault> faults);

/// The arrays of a whole observation, as they are meant or as they are misread.
struct Arrays {
  std::span<const double> q, k, v;
};
[[nodiscard]] Arrays arrays_of(const Observation& o, const Faulted& faulted);

/// 0, 1, ... of the observation's queries.
[[nodiscard]] std::vector<std::int64_t> all_rows(const Observation& o);

/// The inputs of one call's selected rows, as arrays of their own. All arguments must outlive it.
class CallInputs {
 public:
  CallInputs(const Observation& o, const AttentionSpec& spec, const Arrays& arrays, const Calls& calls,
             const FaultedCall& call, std::span<const std::int64_t> rows);
  CallInputs(const CallInputs&) = delete;

  [[nodiscard]] const reference::AttentionInputs& get() const { return in_; }

 private:
  std::vector<double> q_, bias_;
  std::vector<TokenCoord> q_coords_;
  std::vector<std::int64_t> q_rope_pos_;
  std::vector<std::uint8_t> dense_;
  std::vector<std::int32_t> q_node_, kv_node_;
  reference::AttentionInputs in_;
};

}  // namespace sightline::checker
