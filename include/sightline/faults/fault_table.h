// The table of faults: each is a changed spec, changed coordinates of a call, a changed trace, a changed
// loss or a deviation of the oracle. Data only; whoever runs a fault needs no code of its own for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/reference/deviation.h"
#include "sightline/spec/attention_spec.h"
#include "sightline/spec/call.h"
#include "sightline/spec/loss.h"
#include "sightline/spec/trace.h"

namespace sightline {

/// The sections of the catalogue of faults.
enum class FaultGroup : std::uint8_t {
  kVisibility,  ///< A. who may read whom
  kCacheSlot,   ///< B. which cache slot
  kPosition,    ///< C. at which position
  kHeads,       ///< D. heads and layout
  kScore,       ///< E. score and softmax
  kObjective,   ///< F. training objective
  kGradient,    ///< G. gradients
  kBatch,       ///< H. batch independence
};
[[nodiscard]] std::string_view to_string(FaultGroup group);

/// What an observation must hold for a row to show in it; rows of the group of gradients need gradients
/// besides.
enum class FaultNeed : std::uint8_t {
  kNothing,
  kCachedKeys,    ///< calls on keys of calls before
  kBias,          ///< an additive mask
  kZeroKey,       ///< a key that is 0
  kNanGradient,   ///< a last row of gradients that is NaN
  kZeroGradient,  ///< gradients that are 0 throughout
  kPaddingBehind  ///< padding behind the last token
};

struct FaultParameter {
  std::string_view name;
  double value = 0;  ///< default
  std::string_view what;
  bool is_whole = false;  ///< a whole number of at most 2^31 - 1 in magnitude
};

struct Fault;

/// One row of the table. Functions that are null change nothing of their kind.
struct FaultKind {
  std::string_view slug;     ///< the kind's name, "mask.window_off_by_one"
  std::string_view variant;  ///< which of several forms under one slug; empty: the only one
  FaultGroup group = FaultGroup::kVisibility;
  std::string_view what;  ///< one line for people
  std::vector<FaultParameter> parameters;
  bool is_oracle_only = false;  ///< a spec can say it, but only the oracle runs such a spec
  FaultNeed needs = FaultNeed::kNothing;
  bool is_unlikely = false;  ///< of explanations that fit alike it is not the simplest

  Result<void> (*on_spec)(const Fault&, AttentionSpec&) = nullptr;
  Result<void> (*on_call)(const Fault&, CallCoords&) = nullptr;
  Result<void> (*on_trace)(const Fault&, Trace&) = nullptr;
  Result<void> (*on_loss)(const Fault&, LossSpec&) = nullptr;
  Result<void> (*on_deviation)(const Fault&, const AttentionSpec&, reference::Deviation&) = nullptr;
};

/// A row with the values of its parameters.
struct Fault {
  const FaultKind* kind = nullptr;
  std::vector<double> values;  ///< one per parameter

  /// Requires that the row has such a parameter.
  [[nodiscard]] double value(std::string_view name) const;
};

/// All rows. The first of a slug is its usual form. Lives for ever.
[[nodiscard]] std::span<const FaultKind> fault_table();

/// Reads "SLUG" or "SLUG/VARIANT", either with ":NAME=NUMBER,NAME=NUMBER" behind it.
/// Errors (kInvalidArgument): an unknown slug, variant or parameter (the known ones are named), a value that
/// is no finite number, or no whole one where that is asked for.
[[nodiscard]] Result<Fault> parse_fault(std::string_view text);
/// Text that reads back equal; parameters at their defaults are left out.
[[nodiscard]] std::string to_string(const Fault& fault);

/// True when the fault can be planted in an engine that generates: by its spec and its calls alone.
[[nodiscard]] bool runs_in_engine(const FaultKind& kind);

// Each plant makes the change that the fault has for its argument, and none when it has none.
// Errors (kInvalidArgument) name the fault and what is missing, such as a window to be off by one; the
// argument is then as before.

[[nodiscard]] Result<void> plant(const Fault& fault, AttentionSpec& spec);
/// Every layer to which it applies; an error when that is none.
[[nodiscard]] Result<void> plant(const Fault& fault, std::span<AttentionSpec> layers);
[[nodiscard]] Result<void> plant(const Fault& fault, Trace& trace);
[[nodiscard]] Result<void> plant(const Fault& fault, LossSpec& loss);
/// For every call of a sequence, each on its right coordinates.
[[nodiscard]] Result<void> plant(const Fault& fault, CallCoords& call);
/// `spec`: the right one.
[[nodiscard]] Result<void> plant(const Fault& fault, const AttentionSpec& spec,
                                 reference::Deviation& deviation);

}  // namespace sightline
