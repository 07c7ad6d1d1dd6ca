// The rows of x in the forms that the products of a linear layer read: f32 or bf16 in tiles of 256 inputs, or
// int8 with one scale per block of 32. Made once a call, read by all panels. Private to ops.
#pragma once

#include <cstdint>

#include "sightline/base/aligned_buffer.h"
#include "sightline/base/strided_view.h"
#include "sightline/base/thread_pool.h"
#include "sightline/kernels/kernel_table.h"
#include "sightline/ops/packed_linear.h"

namespace sightline {

inline constexpr std::int64_t kInnerBlock = 256;  ///< 256 x 32 f32: 32 KiB, in the first cache for all rows
inline constexpr std::int64_t kRowBlock = 96;     ///< rows of one work item; a multiple of kQuantRows

/// What one piece of the weights reads.
struct InputForm {
  WeightStorage storage = WeightStorage::kF32;
  bool is_pairs = false;  ///< bf16: pairs of bf16, not of f32
  int zero = 0;           ///< quantised: as QuantizeArgs
  bool has_two_stretches = false;
  bool operator==(const InputForm&) const = default;
};
[[nodiscard]] InputForm input_form(const PackedLinear::Piece& piece, const kernels::KernelTable& table);

class LinearInputs {
 public:
  /// Brings rows [row_begin, row_begin + num_rows) of x to `form`, in parallel where that pays.
  void make(const InputForm& form, StridedView<const float, 2> x, std::int64_t row_begin,
            std::int64_t num_rows, ThreadPool& pool, const kernels::KernelTable& table);

  [[nodiscard]] const InputForm& form() const { return form_; }
  /// Words of 4 bytes of one row of a tile, and from `row` on those of inputs [k, k + 256); f32 and bf16.
  [[nodiscard]] std::int64_t tile_stride() const;
  [[nodiscard]] const float* tile(std::int64_t row, std::int64_t k) const {
    return words_.data() + (k / kInnerBlock * num_rows_ + row) * tile_stride();
  }
  /// Blocks from `row` on, which starts a tile of kQuantRows.
  [[nodiscard]] const kernels::ActivationBlock* blocks(std::int64_t row) const {
    return blocks_.data() + row * num_blocks_;
  }

  /// Bytes kept for `num_rows` rows in the largest form.
  [[nodiscard]] static std::int64_t bytes(std::int64_t num_rows, std::int64_t in_dim);

 private:
  void make_rows(StridedView<const float, 2> x, std::int64_t row_begin, std::int64_t begin, std::int64_t end,
                 const kernels::KernelTable& table);

  InputForm form_;
  std::int64_t num_rows_ = 0;
  std::int64_t num_blocks_ = 0;
  AlignedBuffer<float> words_;
  AlignedBuffer<kernels::ActivationBlock> blocks_;
};

}  // namespace sightline
