// Rows of a work item from the caller's arrays to the order the micro-kernels eat: queries, and in the
// backward the upstream gradient of the outputs.
#pragma once

#include "attention/plan.h"
#include "attention/rope_table.h"
#include "sightline/base/strided_view.h"

namespace sightline {

/// Packs the rows of `item` as [num_groups][dims][12]; rows that do not exist are 0.
///   from  [num_q_tokens, num_q_heads, dims]; `rope` rotates each row by its token, null or inactive: none
///   rows  scratch, [12][dims]
void pack_rows(const kernels::KernelTable& table, const KeyStream& stream, const WorkItem& item,
               const StridedView<const float, 3>& from, const RopeTable* rope, float* rows, float* to);

}  // namespace sightline
