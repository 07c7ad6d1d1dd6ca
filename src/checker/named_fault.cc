#include "sightline/checker/named_fault.h"

#include "sightline/faults/catalogue.h"

namespace sightline::checker {

NamedFault named_fault(std::string_view slug) {
  NamedFault named;
  named.slug = slug;
  if (const CatalogueEntry* entry = find_in_catalogue(slug)) {
    named.what = entry->what;
    named.idiom = entry->idiom;
    named.fix = entry->fix;
  }
  return named;
}

NamedFault named_fault(const Fault& fault) {
  NamedFault named = named_fault(fault.kind->slug);
  named.variant = fault.kind->variant;
  named.what = fault.kind->what;
  for (std::size_t i = 0; i < fault.values.size(); ++i) {
    const FaultParameter& parameter = fault.kind->parameters[i];
    named.parameters.push_back({std::string(parameter.name), fault.values[i], std::string(parameter.what)});
  }
  return named;
}

std::string full_name(const NamedFault& fault) {
  return fault.variant.empty() ? fault.slug : fault.slug + "/" + fault.variant;
}

}  // namespace sightline::checker
