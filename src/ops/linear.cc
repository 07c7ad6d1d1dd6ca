// Blocking of the linear layer. Order of additions: the kernels take each output as one chain over k
// ascending and continue a stored accumulator, so no border chosen here changes a bit.
#include "sightline/ops/linear.h"

#include <algorithm>

#include "ops/linear_inputs.h"

namespace sightline {

namespace {

constexpr std::int64_t kColumns = PackedLinear::kPanelColumns;
constexpr std::int64_t kRowsAtOnce = 8 * kRowBlock;  // bounds the copy of x
static_assert(kRowBlock % kernels::kQuantRows == 0);

// Adds the bias and writes the columns that exist.
void store(const float* acc, std::int64_t num_rows, std::int64_t num_columns, const float* bias, float* y,
           std::int64_t y_stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float* from = acc + row * kColumns;
    float* to = y + row * y_stride;
    for (std::int64_t n = 0; n < num_columns; ++n) to[n] = bias == nullptr ? from[n] : from[n] + bias[n];
  }
}

// One panel for some rows, by how it is stored: the whole chain over k into acc [num_rows, 32].
void f32_panel(const float* panel, std::int64_t in_dim, const LinearInputs& inputs, std::int64_t row,
               std::int64_t num_rows, const kernels::KernelTable& table, float* acc) {
  for (std::int64_t k = 0; k < in_dim; k += kInnerBlock) {
    kernels::LinearArgs args;
    args.x = inputs.tile(row, k);
    args.x_stride = inputs.tile_stride();
    args.panel = panel + k * kColumns;
    args.y = acc;
    args.y_stride = kColumns;
    args.num_rows = num_rows;
    args.num_k = std::min(kInnerBlock, in_dim - k);
    args.accumulate = k > 0;
    args.prefetch = args.panel + kInnerBlock * kColumns;  // the next block of this panel, or the next panel
    args.prefetch_bytes = kInnerBlock * kColumns * 4;
    table.linear_rows(args);
  }
}

void bf16_panel(const std::uint16_t* panel, std::int64_t in_dim, const LinearInputs& inputs, std::int64_t row,
                std::int64_t num_rows, const kernels::KernelTable& table, float* acc) {
  for (std::int64_t k = 0; k < in_dim; k += kInnerBlock) {
    kernels::LinearBf16Args args;
    args.x = inputs.tile(row, k);
    args.x_stride = inputs.form().is_pairs ? inputs.tile_stride() : inputs.tile_stride() / 2;
    args.panel = panel + k * kColumns;
    args.y = acc;
    args.num_rows = num_rows;
    args.num_pairs = (std::min(kInnerBlock, in_dim - k) + 1) / 2;
    args.accumulate = k > 0;
    args.prefetch = args.panel + kInnerBlock * kColumns;
    args.prefetch_bytes = kInnerBlock * kColumns * 2;
    table.linear_bf16(args);
  }
}

void quant_panel(const PackedLinear::Piece& piece, const std::byte* panel, std::int64_t in_dim,
                 const LinearInputs& inputs, std::int64_t row, std::int64_t num_rows,
                 const kernels::KernelTable& table, float* acc) {
  kernels::LinearQuantArgs args;
  args.kind = piece.kind;
  args.x = inputs.blocks(row);
  args.panel = reinterpret_cast<const std::uint8_t*>(panel);
  args.y = acc;
  args.num_rows = num_rows;
  args.num_blocks = in_dim / 32;
  table.linear_quant(args);
}

struct Call {
  const PackedLinear& weights;
  std::span<const float> bias;
  StridedView<float, 2> y;
  const kernels::KernelTable& table;
};

void run_panel(const Call& call, const PackedLinear::Piece& piece, std::int64_t panel_idx,
               const LinearInputs& inputs, std::int64_t row_begin, std::int64_t row, std::int64_t num_rows) {
  alignas(kCacheLineBytes) float acc[kRowBlock * kColumns];
  const std::byte* const panel = piece.panel(panel_idx);
  const std::int64_t in_dim = call.weights.in_dim();
  const std::int64_t column = piece.out_begin + panel_idx * kColumns;
  const std::int64_t num_columns = std::min(kColumns, piece.out_end - column);
  float* const y = &call.y(row_begin + row, column);
  switch (piece.storage) {
    case WeightStorage::kF32:
      f32_panel(reinterpret_cast<const float*>(panel), in_dim, inputs, row, num_rows, call.table, acc);
      break;
    case WeightStorage::kBf16:
      bf16_panel(reinterpret_cast<const std::uint16_t*>(panel), in_dim, inputs, row, num_rows, call.table,
                 acc);
      break;
    case WeightStorage::kQuantised:
      quant_panel(piece, panel, in_dim, inputs, row, num_rows, call.table, acc);
      break;
  }
  store(acc, num_rows, num_columns, call.bias.empty() ? nullptr : call.bias.data() + column, y,
        call.y.strides[0]);
}

// Panels change fastest: a block of x stays in the second cache while the weights stream past.
void run_piece(const Call& call, const PackedLinear::Piece& piece, const LinearInputs& inputs,
               std::int64_t row_begin, std::int64_t num_rows, ThreadPool& pool) {
  const std::int64_t num_row_blocks = (num_rows + kRowBlock - 1) / kRowBlock;
  const std::int64_t num_panels = piece.num_panels();
  pool.parallel_for(num_row_blocks * num_panels, [&](std::int64_t item, int) {
    const std::int64_t row = item / num_panels * kRowBlock;
    run_panel(call, piece, item % num_panels, inputs, row_begin, row, std::min(kRowBlock, num_rows - row));
  });
}

}  // namespace

void linear_forward(const PackedLinear& weights, StridedView<const float, 2> x, std::span<const float> bias,
                    StridedView<float, 2> y, ThreadPool& pool, const kernels::KernelTable& table) {
  // Belong to the calling thread and are kept: no allocation after warm-up.
  thread_local LinearInputs kept;
  LinearInputs& inputs = kept;  // a worker's `kept` is another one
  const Call call{weights, bias, y, table};
  for (std::int64_t begin = 0; begin < x.shape[0]; begin += kRowsAtOnce) {
    const std::int64_t num_rows = std::min(kRowsAtOnce, x.shape[0] - begin);
    bool is_made = false;
    for (const PackedLinear::Piece& piece : weights.pieces()) {
      const InputForm form = input_form(piece, table);
      if (!is_made || inputs.form() != form) inputs.make(form, x, begin, num_rows, pool, table);
      is_made = true;
      run_piece(call, piece, inputs, begin, num_rows, pool);
    }
  }
}

std::int64_t linear_scratch_bytes(std::int64_t num_rows, std::int64_t in_dim) {
  return LinearInputs::bytes(std::min(num_rows, kRowsAtOnce), in_dim);
}

}  // namespace sightline
