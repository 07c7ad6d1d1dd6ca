// Rows of a batch know nothing of each other: asked together they answer what each answers alone, and where
// they do not, what a row took from another row is measured. Held against the subject itself, not the oracle.
#pragma once

#include <vector>

#include "checker/relations.h"
#include "sightline/checker/named_fault.h"

namespace sightline::checker {

struct RowIndependence {
  RelationResult relation;
  /// What rows do instead, when the relation fails: `rope.batch_row` or `batch.kernel_indexing`; several
  /// where they explain every differing row alike, none where nothing does.
  std::vector<NamedFault> faults;
  std::string first_row;  ///< the first row that differs, in words; empty: none
};

/// Asks three rows at once, then each alone: the inputs of `whole`, and its tokens turned round, at positions
/// and with padding of their own as far as the traits go. When a row differs, asks it alone again with one
/// thing at a time taken from another row: positions, padding, keys, values, queries, all of it. Needs
/// traits().takes_batch. Errors: those of asking. Cost: one call of three rows, 3 questions, and up to 14 for
/// each row that differs. `in.chunks` is not looked at.
[[nodiscard]] Result<RowIndependence> hold_row_independence(Subject& subject, const RelationInputs& in);

}  // namespace sightline::checker
