// y = x W^T + b with weights packed once at load. One arithmetic per weight type for any number of rows:
// 1 and 64 rows take the same order of additions, so a row's bits never depend on its company.
#pragma once

#include <cstdint>
#include <span>

#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kernels/kernel_table.h"
#include "sightline/ops/packed_linear.h"

namespace sightline {

/// y[i, n] = bias[n] + the product of row i of x and row n of W, one chain per output that starts at 0; bias
/// (empty: none) is added at the end. By how W is stored:
///   f32        sum over k ascending of x[i, k] w[n, k] (fused where the table says so)
///   bf16       sum over pairs of k ascending, x rounded to bf16 where the CPU multiplies bf16
///   quantised  x quantised to int8 per row and block of 32 (kernels::QuantizeArgs), exact integer dot
///              products, sum over blocks ascending (kernels::LinearQuantArgs). A row with a number that is
///              not finite gives NaN.
///   x [num_rows, in_dim], y [num_rows, out_dim], rows contiguous, row strides free; must not overlap.
/// Parallel over panels and row blocks; bits do not depend on threads or num_rows.
/// Scratch: a copy of at most 768 rows of x, kept by the calling thread.
void linear_forward(const PackedLinear& weights, StridedView<const float, 2> x, std::span<const float> bias,
                    StridedView<float, 2> y, ThreadPool& pool,
                    const kernels::KernelTable& table = kernels::active_table());

/// At most the bytes that linear_forward keeps for the copy of `num_rows` rows of x, whatever the storage;
/// bounded in num_rows.
[[nodiscard]] std::int64_t linear_scratch_bytes(std::int64_t num_rows, std::int64_t in_dim);

}  // namespace sightline
