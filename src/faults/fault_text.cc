// Faults as text: "slug/variant:name=number".
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "sightline/faults/fault_table.h"

namespace sightline {
namespace {

Result<const FaultKind*> find_kind(std::string_view slug, std::string_view variant) {
  std::vector<std::string_view> slugs, variants;
  for (const FaultKind& kind : fault_table()) {
    if (std::ranges::count(slugs, kind.slug) == 0) slugs.push_back(kind.slug);
    if (kind.slug != slug) continue;
    if (variant.empty() || kind.variant == variant) return &kind;
    variants.push_back(kind.variant);
  }
  if (variants.empty()) {
    return fail(ErrorKind::kInvalidArgument, "fault '{}' is unknown; known: {}", slug,
                fmt::join(slugs, ", "));
  }
  return fail(ErrorKind::kInvalidArgument, "fault {} has no variant '{}'; it has: {}", slug, variant,
              fmt::join(variants, ", "));
}

/// Reads "NAME=NUMBER" into `fault`.
Result<void> set_parameter(std::string_view text, Fault& fault) {
  const auto equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const auto& parameters = fault.kind->parameters;
  const auto found = std::ranges::find(parameters, name, &FaultParameter::name);
  if (equals == std::string_view::npos || found == parameters.end()) {
    std::vector<std::string_view> names;
    for (const FaultParameter& parameter : parameters) names.push_back(parameter.name);
    return fail(ErrorKind::kInvalidArgument, "fault {}: '{}', expected NAME=NUMBER with NAME of: {}",
                fault.kind->slug, text, names.empty() ? "(none)" : fmt::format("{}", fmt::join(names, ", ")));
  }
  const std::string_view number = text.substr(equals + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size() || !std::isfinite(value)) {
    return fail(ErrorKind::kInvalidArgument, "fault {}: {} = '{}', expected a finite number",
                fault.kind->slug, name, number);
  }
  constexpr double kMaxWhole = std::numeric_limits<std::int32_t>::max();
  if (found->is_whole && (value != std::trunc(value) || std::abs(value) > kMaxWhole)) {
    return fail(ErrorKind::kInvalidArgument, "fault {}: {} = '{}', expected a whole number from {} to {}",
                fault.kind->slug, name, number, -kMaxWhole, kMaxWhole);
  }
  fault.values[static_cast<std::size_t>(found - parameters.begin())] = value;
  return {};
}

}  // namespace

Result<Fault> parse_fault(std::string_view text) {
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto slash = name.find('/');
  const std::string_view variant = slash == std::string_view::npos ? "" : name.substr(slash + 1);
  SIGHTLINE_TRY(const FaultKind* kind, find_kind(name.substr(0, slash), variant));
  Fault fault{kind, {}};
  for (const FaultParameter& parameter : kind->parameters) fault.values.push_back(parameter.value);
  if (colon == std::string_view::npos) return fault;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const auto comma = rest.find(',');
    SIGHTLINE_CHECK(set_parameter(rest.substr(0, comma), fault));
    if (comma == std::string_view::npos) return fault;
    rest.remove_prefix(comma + 1);
  }
}

std::string to_string(const Fault& fault) {
  std::string text(fault.kind->slug);
  if (!fault.kind->variant.empty()) text += fmt::format("/{}", fault.kind->variant);
  char separator = ':';
  for (std::size_t i = 0; i < fault.values.size(); ++i) {
    const FaultParameter& parameter = fault.kind->parameters[i];
    if (fault.values[i] == parameter.value) continue;
    text += fmt::format("{}{}={}", separator, parameter.name, fault.values[i]);
    separator = ',';
  }
  return text;
}

}  // namespace sightline
