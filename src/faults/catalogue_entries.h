// Where the entries of the catalogue stand, by group.
#pragma once

#include <vector>

#include "sightline/faults/catalogue.h"

namespace sightline::faults {

std::vector<CatalogueEntry> visibility_entries();
std::vector<CatalogueEntry> cache_entries();
std::vector<CatalogueEntry> position_entries();
std::vector<CatalogueEntry> score_entries();     // and heads
std::vector<CatalogueEntry> training_entries();  // objective, gradients and batches

}  // namespace sightline::faults
