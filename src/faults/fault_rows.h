// Where the rows of the table stand, by group, and how a row is made.
#pragma once

#include <utility>
#include <vector>

#include "sightline/faults/fault_table.h"

namespace sightline::faults {

std::vector<FaultKind> visibility_rows();
std::vector<FaultKind> hidden_score_rows();
std::vector<FaultKind> packing_rows();
std::vector<FaultKind> draft_tree_rows();
std::vector<FaultKind> cache_rows();
std::vector<FaultKind> position_rows();
std::vector<FaultKind> score_rows();     // and heads
std::vector<FaultKind> training_rows();  // objective and gradients

/// `name`: "slug" or "slug/variant".
inline FaultKind make_row(std::string_view name, FaultGroup group, std::string_view what,
                          std::vector<FaultParameter> parameters) {
  FaultKind kind;
  const auto slash = name.find('/');
  kind.slug = name.substr(0, slash);
  if (slash != std::string_view::npos) kind.variant = name.substr(slash + 1);
  kind.group = group;
  kind.what = what;
  kind.parameters = std::move(parameters);
  return kind;
}

// A row of each sort: what it changes is the type of `change`.
inline FaultKind row(std::string_view name, FaultGroup group, std::string_view what,
                     Result<void> (*change)(const Fault&, AttentionSpec&),
                     std::vector<FaultParameter> parameters = {}) {
  FaultKind kind = make_row(name, group, what, std::move(parameters));
  kind.on_spec = change;
  return kind;
}
inline FaultKind row(std::string_view name, FaultGroup group, std::string_view what,
                     Result<void> (*change)(const Fault&, CallCoords&),
                     std::vector<FaultParameter> parameters = {}) {
  FaultKind kind = make_row(name, group, what, std::move(parameters));
  kind.on_call = change;
  return kind;
}
inline FaultKind row(std::string_view name, FaultGroup group, std::string_view what,
                     Result<void> (*change)(const Fault&, Trace&),
                     std::vector<FaultParameter> parameters = {}) {
  FaultKind kind = make_row(name, group, what, std::move(parameters));
  kind.on_trace = change;
  return kind;
}
inline FaultKind row(std::string_view name, FaultGroup group, std::string_view what,
                     Result<void> (*change)(const Fault&, LossSpec&),
                     std::vector<FaultParameter> parameters = {}) {
  FaultKind kind = make_row(name, group, what, std::move(parameters));
  kind.on_loss = change;
  return kind;
}
inline FaultKind row(std::string_view name, FaultGroup group, std::string_view what,
                     Result<void> (*change)(const Fault&, const AttentionSpec&, reference::Deviation&),
                     std::vector<FaultParameter> parameters = {}) {
  FaultKind kind = make_row(name, group, what, std::move(parameters));
  kind.on_deviation = change;
  return kind;
}

/// `kind`, which shows only in what holds `needs`.
inline FaultKind needing(FaultNeed needs, FaultKind kind) {
  kind.needs = needs;
  return kind;
}
/// `kind`, which something else explains as well and likelier.
inline FaultKind unlikely(FaultKind kind) {
  kind.is_unlikely = true;
  return kind;
}

/// The error of a fault that its argument cannot show.
inline tl::unexpected<Error> not_applicable(const Fault& fault, std::string_view why) {
  return fail(ErrorKind::kInvalidArgument, "fault {}: {}", to_string(fault), why);
}

/// Replaces every leaf `from` of the mask; an error when it has none.
inline Result<void> replace_leaf(const Fault& fault, AttentionSpec& spec, MaskOp from, MaskOp to) {
  if (!uses(spec.mask, from)) {
    return not_applicable(fault, fmt::format("the mask '{}' has no such rule", to_string(spec.mask)));
  }
  for (MaskNode& node : spec.mask.nodes) {
    if (node.op == from) node = {to, 0};
  }
  return {};
}

}  // namespace sightline::faults
