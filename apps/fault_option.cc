#include "apps/fault_option.h"

#include "apps/cli_value.h"
#include "sightline/faults/fault_table.h"

namespace sightline::apps {

Result<int> list_faults(Invocation& call) {
  for (const FaultKind& kind : fault_table()) {
    if (!runs_in_engine(kind)) continue;
    Fault fault{&kind, {}};
    for (const auto& parameter : kind.parameters) fault.values.push_back(parameter.value);
    call.out.print("{:<38} {}\n", to_string(fault), kind.what);
    for (const auto& parameter : kind.parameters) {
      call.out.print("{:<38}   :{}={}  {} (default {})\n", "", parameter.name,
                     parameter.is_whole ? "INTEGER" : "NUMBER", parameter.what, parameter.value);
    }
  }
  return 0;
}

Result<void> plant_fault(const std::string& text, const Model& model, GenerateHooks& hooks) {
  const Result<Fault> parsed = parse_fault(text);
  if (!parsed) {
    std::vector<std::string> names;
    for (const FaultKind& kind : fault_table()) {
      if (runs_in_engine(kind)) names.push_back(to_string(Fault{&kind, {}}));
    }
    const std::string name = text.substr(0, text.find(':'));
    const std::string near = nearest_name(name, names);
    // A known name whose parameters are wrong: the error says which.
    if (near == name || near.empty()) return tl::unexpected<Error>(parsed.error());
    return fail(ErrorKind::kInvalidArgument,
                "--fault {}: there is no such fault; did you mean '{}'? (--fault list)", text, near);
  }
  const Fault& fault = *parsed;
  if (!runs_in_engine(*fault.kind)) {
    return fail(
        ErrorKind::kInvalidArgument,
        "--fault {}: only the oracle can run this fault; --fault list names those that generate can plant",
        to_string(fault));
  }
  if (fault.kind->on_spec != nullptr) {
    hooks.specs = model.attention_specs();
    SIGHTLINE_CHECK(plant(fault, std::span(hooks.specs)));
  }
  if (fault.kind->on_call != nullptr) {
    hooks.change_call = [fault](CallCoords& call) { return plant(fault, call); };
  }
  return {};
}

}  // namespace sightline::apps
