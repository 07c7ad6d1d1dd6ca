// Two files of one model as a subject: what the second says or holds otherwise than the first.
#pragma once

#include <string>

#include "sightline/base/error.h"
#include "sightline/checker/report.h"
#include "sightline/model/model_info.h"

namespace sightline::subjects {

/// Holds `theirs` against `ours` without running either, and names what differs: rope.pairing (rotary rows in
/// the other order), head.fused_qkv_layout, score.scale (q or k times a constant), and of what the files say
/// rope.base, rope.scaling_missing, rope.yarn_magnitude, rope.partial_dim, score.scale, score.softcap,
/// head.dim_explicit, mask.window_scope (one has no window), mask.window_off_by_one (another number of keys).
/// Certain: two layers or more show it, or both files say it. Anything else is `unknown`, with the blocks and
/// members that differ as evidence; `rounding` when only the stored types do. Errors: those of
/// compare_models.
[[nodiscard]] Result<checker::Report> check_model_files(const std::string& ours, const std::string& theirs,
                                                        const LoadOptions& options = {});

}  // namespace sightline::subjects
