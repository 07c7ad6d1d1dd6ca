// Token embeddings, looked up from the packed table that a tied head also multiplies with.
#pragma once

#include <cstdint>
#include <span>

#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"
#include "sightline/ops/linear.h"

namespace sightline {

/// y[i] = scale * W[ids[i]], rounded once.
///   ids [num_tokens], each in [0, table.out_dim()): the caller has checked them
///   y   [num_tokens, table.in_dim()], rows contiguous
/// Cost: one cache line read for each number (the packed form is made for products).
void embedding_forward(const PackedLinear& table, std::span<const std::int32_t> ids, float scale,
                       StridedView<float, 2> y, ThreadPool& pool);

}  // namespace sightline
