// y = x W^T + b with weights packed once at load. One arithmetic per weight type for any number of rows:
// 1 and 64 rows take the same order of additions, so a row's bits never depend on its company.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "sightline/base/aligned_buffer.h"
#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kernels/kernel_table.h"

namespace sightline {

/// Weights of one linear layer in panels of kPanelColumns outputs: [panel][in_dim][kPanelColumns] f32,
/// the last panel padded with 0.
class PackedLinear {
 public:
  static constexpr int kPanelColumns = 32;

  PackedLinear() = default;
  /// Packs rows as they are produced: `read_rows(begin, end, out)` fills out with rows [begin, end) of
  /// W [out_dim, in_dim], row-major. Called with at most 32 rows at a time, ascending, so peak memory is the
  /// packed size plus one panel. An error of read_rows is passed on.
  using ReadRows = std::function<Result<void>(std::int64_t begin, std::int64_t end, std::span<float> out)>;
  [[nodiscard]] static Result<PackedLinear> pack(std::int64_t out_dim, std::int64_t in_dim,
                                                 const ReadRows& read_rows);

  [[nodiscard]] std::int64_t out_dim() const { return out_dim_; }
  [[nodiscard]] std::int64_t in_dim() const { return in_dim_; }
  [[nodiscard]] std::size_t bytes() const { return panels_.size() * sizeof(float); }
  [[nodiscard]] const float* panel(std::int64_t panel_idx) const {
    return panels_.data() + panel_idx * in_dim_ * kPanelColumns;
  }
  /// Row `out_idx` of W (an embedding looked up from the packed form), in_dim numbers.
  void unpack_row(std::int64_t out_idx, std::span<float> row) const;

 private:
  std::int64_t out_dim_ = 0;
  std::int64_t in_dim_ = 0;
  AlignedBuffer<float> panels_;
};

/// y[i, n] = bias[n] + sum over k ascending of x[i, k] w[n, k], one fused chain per output that starts at 0;
/// bias (empty: none) is added at the end.
///   x [num_rows, in_dim], y [num_rows, out_dim], rows contiguous, row strides free; must not overlap.
/// Parallel over panels and row blocks; bits do not depend on threads or num_rows.
/// Scratch: a copy of at most 768 rows of x, kept by the calling thread.
void linear_forward(const PackedLinear& weights, StridedView<const float, 2> x, std::span<const float> bias,
                    StridedView<float, 2> y, ThreadPool& pool,
                    const kernels::KernelTable& table = kernels::active_table());

/// Bytes that linear_forward keeps for the copy of `num_rows` rows of x; bounded in num_rows.
[[nodiscard]] std::int64_t linear_scratch_bytes(std::int64_t num_rows, std::int64_t in_dim);

}  // namespace sightline
