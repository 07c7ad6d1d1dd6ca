// What else than a fault of the table sets a program apart from the file that it runs: settings stated on its
// command line (`--rope-scaling`, `--rope-freq-scale`), and a copy of the file whose rows of q or k a
// converter put in another order. Rows in the form of the fault table, under its slugs; only whole models
// have them.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sightline/faults/fault_table.h"
#include "sightline/model/model.h"

namespace sightline::subjects {

struct AlteredSetting {
  FaultKind kind;  ///< its on_spec changes each layer; null where on_rows does
  /// The same as a change of projected rows; nothing where the value does not apply to the model.
  RowChange (*on_rows)(double value, const ModelSpec& model) = nullptr;
};

[[nodiscard]] std::span<const AlteredSetting> altered_settings();
/// Null: a row of the fault table.
[[nodiscard]] const AlteredSetting* altered_setting(const FaultKind* kind);

/// Numbers of heads with which a converter may have permuted rows that belong to other heads.
[[nodiscard]] std::vector<double> head_counts_of_rows(const ModelSpec& model, bool of_keys);

}  // namespace sightline::subjects
