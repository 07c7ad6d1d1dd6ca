// What sets a program apart from the file that it runs, for whole models alone: settings stated on its
// command line (`--rope-scaling`, `--rope-freq-scale`) as rows in the form of the fault table, under its
// slugs, and rows of the table that a converter or reader plants in the order of q and k.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sightline/faults/fault_table.h"
#include "sightline/model/model.h"

namespace sightline::subjects {

/// Statements of a command line; the on_spec of each changes every layer.
[[nodiscard]] std::span<const FaultKind> altered_settings();

/// True for rows of the fault table that put rows of q or k into another order.
[[nodiscard]] bool moves_rows(const FaultKind& kind);
/// Such a fault as a change of projected rows; nothing where it does not apply to the model.
[[nodiscard]] RowChange moved_rows(const Fault& fault, const ModelSpec& model);
/// Widths that programs have taken by mistake and that fit the model's rows.
[[nodiscard]] std::vector<double> usual_row_widths(const FaultKind& kind, const ModelSpec& model);

/// Either may be empty.
[[nodiscard]] RowChange one_after_other(RowChange first, const RowChange& then);

}  // namespace sightline::subjects
