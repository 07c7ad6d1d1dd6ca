// The kinds of fault as people meet them: what each is, where it shows, what it is taken for, the code that
// usually causes it and what repairs it. Words only; how a kind is planted stands in the fault table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sightline/faults/fault_table.h"

namespace sightline {

/// Where a kind shows first, and so what has to be looked at to find it.
enum class ShowsIn : std::uint8_t {
  kOutputs,    ///< out, lse or weights of one sequence of attention calls
  kGradients,  ///< dq, dk, dv of one call, beside a right forward
  kLoss,       ///< the loss of a training batch: its targets and how they are counted
  kBatchRows,  ///< a row of a batch against the same row alone
  kRepeats,    ///< the same call again, bit by bit
  kBytes,      ///< bytes a token takes in the cache
  kCalls,      ///< calls over time: a shift, a rejection, a second turn, a hit of the prefix cache
  kLayers,     ///< the layers of a whole model, one against another
  kNowhere,    ///< not in anything that a subject answers; `where` says why
};
[[nodiscard]] std::string_view to_string(ShowsIn shows_in);

/// One kind of fault. All texts are single lines.
struct CatalogueEntry {
  std::string_view slug;  ///< its only name, as in the fault table
  FaultGroup group = FaultGroup::kVisibility;
  std::string_view what;  ///< the definition
  ShowsIn shows_in = ShowsIn::kOutputs;
  std::string_view where;                    ///< how it shows there
  std::vector<std::string_view> neighbours;  ///< slugs that it is taken for, and that are taken for it
  std::string_view idiom;                    ///< the code that usually causes it
  std::string_view fix;
  /// Why no row of the fault table plants a kind that shows in outputs; empty for all others.
  std::string_view not_planted;
};

/// All kinds, by group. Lives for ever.
[[nodiscard]] std::span<const CatalogueEntry> fault_catalogue();

/// The kind with this slug; null for an unknown one.
[[nodiscard]] const CatalogueEntry* find_in_catalogue(std::string_view slug);

}  // namespace sightline
