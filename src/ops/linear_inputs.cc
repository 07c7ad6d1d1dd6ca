#include "ops/linear_inputs.h"

#include <algorithm>

#include "sightline/kernels/quant_panel.h"

namespace sightline {

namespace {

// Rows of a tile lie this far apart: not a power of two, so that they do not share cache sets.
constexpr std::int64_t kPad = 16;
constexpr std::int64_t kRowsInSeries = 16;  // below, waking threads costs more than the copy

std::int64_t num_tiles(std::int64_t in_dim) { return (in_dim + kInnerBlock - 1) / kInnerBlock; }

}  // namespace

InputForm input_form(const PackedLinear::Piece& piece, const kernels::KernelTable& table) {
  InputForm form{.storage = piece.storage};
  if (piece.storage == WeightStorage::kBf16) form.is_pairs = table.bf16_dot;
  if (piece.storage == WeightStorage::kQuantised) {
    const QuantTraits traits = quant_traits(piece.kind);
    form.zero = traits.zero;
    form.has_two_stretches = traits.stretch_values < kernels::kQuantInputs;
  }
  return form;
}

std::int64_t LinearInputs::tile_stride() const {
  return (form_.is_pairs ? kInnerBlock / 2 : kInnerBlock) + kPad;
}

void LinearInputs::make(const InputForm& form, StridedView<const float, 2> x, std::int64_t row_begin,
                        std::int64_t num_rows, ThreadPool& pool, const kernels::KernelTable& table) {
  form_ = form;
  num_rows_ = num_rows;
  num_blocks_ = x.shape[1] / kernels::kQuantInputs;
  if (form.storage == WeightStorage::kQuantised) {
    blocks_.reserve_discard(static_cast<std::size_t>(num_rows * num_blocks_));
  } else {
    words_.reserve_discard(static_cast<std::size_t>(num_tiles(x.shape[1]) * num_rows * tile_stride()));
  }
  if (num_rows < kRowsInSeries) return make_rows(x, row_begin, 0, num_rows, table);
  const std::int64_t step = kernels::kQuantRows;
  pool.parallel_for((num_rows + step - 1) / step, [&](std::int64_t item, int) {
    make_rows(x, row_begin, item * step, std::min(num_rows, (item + 1) * step), table);
  });
}

void LinearInputs::make_rows(StridedView<const float, 2> x, std::int64_t row_begin, std::int64_t begin,
                             std::int64_t end, const kernels::KernelTable& table) {
  if (form_.storage == WeightStorage::kQuantised) {
    for (std::int64_t row = begin; row < end; row += kernels::kQuantRows) {
      kernels::QuantizeArgs args;
      args.x = &x(row_begin + row, 0);
      args.x_stride = x.strides[0];
      args.num_rows = std::min<std::int64_t>(kernels::kQuantRows, end - row);
      args.num_blocks = num_blocks_;
      args.zero = form_.zero;
      args.has_two_stretches = form_.has_two_stretches;
      args.out = blocks_.data() + row * num_blocks_;
      table.quantize_rows(args);
    }
    return;
  }
  const std::int64_t in_dim = x.shape[1];
  for (std::int64_t row = begin; row < end; ++row) {
    const float* const from = &x(row_begin + row, 0);
    for (std::int64_t k = 0; k < in_dim; k += kInnerBlock) {
      const std::int64_t count = std::min(kInnerBlock, in_dim - k);
      float* const to = words_.data() + (k / kInnerBlock * num_rows_ + row) * tile_stride();
      if (form_.storage == WeightStorage::kF32) {
        std::copy_n(from + k, count, to);
      } else {
        table.pack_bf16_row(from + k, count, to);
      }
    }
  }
}

std::int64_t LinearInputs::bytes(std::int64_t num_rows, std::int64_t in_dim) {
  const std::int64_t as_words = num_tiles(in_dim) * (kInnerBlock + kPad) * 4;
  const std::int64_t as_blocks =
      in_dim / kernels::kQuantInputs * std::int64_t{sizeof(kernels::ActivationBlock)};
  return num_rows * (as_words + as_blocks);
}

}  // namespace sightline
