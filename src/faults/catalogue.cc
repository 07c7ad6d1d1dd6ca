#include "sightline/faults/catalogue.h"

#include <algorithm>

#include "catalogue_entries.h"

namespace sightline {
namespace {

std::vector<CatalogueEntry> all_entries() {
  std::vector<CatalogueEntry> entries;
  for (const auto& part : {faults::visibility_entries(), faults::cache_entries(), faults::position_entries(),
                           faults::score_entries(), faults::training_entries()}) {
    entries.insert(entries.end(), part.begin(), part.end());
  }
  return entries;
}

}  // namespace

std::string_view to_string(ShowsIn shows_in) {
  constexpr std::string_view kNames[] = {"outputs", "gradients", "loss",   "batch_rows", "repeats",
                                         "bytes",   "calls",     "layers", "nowhere"};
  return kNames[static_cast<std::size_t>(shows_in)];
}

std::span<const CatalogueEntry> fault_catalogue() {
  static const std::vector<CatalogueEntry> kEntries = all_entries();
  return kEntries;
}

const CatalogueEntry* find_in_catalogue(std::string_view slug) {
  const auto found = std::ranges::find(fault_catalogue(), slug, &CatalogueEntry::slug);
  return found == fault_catalogue().end() ? nullptr : &*found;
}

}  // namespace sightline
