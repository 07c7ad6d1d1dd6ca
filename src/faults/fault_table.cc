#include "sightline/faults/fault_table.h"

#include <algorithm>

#include "fault_rows.h"

namespace sightline {
namespace {

std::vector<FaultKind> all_rows() {
  std::vector<FaultKind> rows;
  for (const auto& part :
       {faults::visibility_rows(), faults::hidden_score_rows(), faults::packing_rows(), faults::cache_rows(),
        faults::position_rows(), faults::score_rows(), faults::training_rows(), faults::draft_tree_rows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

/// Runs `change` on a copy, so that an error leaves the argument as it was.
template <typename T, typename Change>
Result<void> on_copy(T& argument, Change change) {
  T changed = argument;
  SIGHTLINE_CHECK(change(changed));
  argument = std::move(changed);
  return {};
}

}  // namespace

std::string_view to_string(FaultGroup group) {
  constexpr std::string_view kNames[] = {"visibility", "cache_slot", "position", "heads",
                                         "score",      "objective",  "gradient", "batch"};
  return kNames[static_cast<std::size_t>(group)];
}

double Fault::value(std::string_view name) const {
  const auto found = std::ranges::find(kind->parameters, name, &FaultParameter::name);
  return values[static_cast<std::size_t>(found - kind->parameters.begin())];
}

std::span<const FaultKind> fault_table() {
  static const std::vector<FaultKind> kRows = all_rows();
  return kRows;
}

bool runs_in_engine(const FaultKind& kind) {
  return (kind.on_spec != nullptr || kind.on_call != nullptr) && !kind.is_oracle_only;
}

Result<void> plant(const Fault& fault, AttentionSpec& spec) {
  if (fault.kind->on_spec == nullptr) return {};
  return on_copy(spec, [&](AttentionSpec& changed) -> Result<void> {
    SIGHTLINE_CHECK(fault.kind->on_spec(fault, changed));
    if (changed == spec) return faults::not_applicable(fault, "it changes nothing of: " + describe(spec));
    return validate(changed);
  });
}

Result<void> plant(const Fault& fault, std::span<AttentionSpec> layers) {
  Result<void> first_error;
  bool applied = layers.empty();
  for (AttentionSpec& layer : layers) {
    const Result<void> done = plant(fault, layer);
    if (done) applied = true;
    if (!done && first_error) first_error = done;
  }
  if (applied) return {};
  return first_error;
}

Result<void> plant(const Fault& fault, Trace& trace) {
  if (fault.kind->on_trace == nullptr) return {};
  return on_copy(trace, [&](Trace& changed) { return fault.kind->on_trace(fault, changed); });
}

Result<void> plant(const Fault& fault, LossSpec& loss) {
  if (fault.kind->on_loss == nullptr) return {};
  return on_copy(loss, [&](LossSpec& changed) { return fault.kind->on_loss(fault, changed); });
}

Result<void> plant(const Fault& fault, CallCoords& call) {
  if (fault.kind->on_call == nullptr) return {};
  return on_copy(call, [&](CallCoords& changed) { return fault.kind->on_call(fault, changed); });
}

Result<void> plant(const Fault& fault, const AttentionSpec& spec, reference::Deviation& deviation) {
  if (fault.kind->on_deviation == nullptr) return {};
  return on_copy(deviation, [&](reference::Deviation& changed) {
    return fault.kind->on_deviation(fault, spec, changed);
  });
}

}  // namespace sightline
