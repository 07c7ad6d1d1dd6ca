// Blocking of the linear layer. Order of additions: the kernels take each
// output as one chain over k ascending and continue a stored accumulator, so no
// border chosen here changes a bit.
#include "sightline/ops/linear.h"

#include <algorithm>

#include "ops/linear_inputs.h"

namespace sightline {

namespace {

constexpr std::int64_t kColumns = PackedLinear::kPanelColumns;
constexpr std::int64_t kRowsAtOnce = 8 * kRowBlock;  // bounds the copy of x
constexpr std::int64_t kItemRows = 4 * kRowBlock;    // that one reading of f32 or bf16 weights serves
// Of x: with the weights of an item it stays in the second cache.
constexpr std::int64_t kStretchBytes = std::int64_t{1} << 20;
static_assert(kRowBlock % kernels::kQuantRows == 0);

// Inputs [begin, end) of a layer; begin is a multiple of kInnerBlock.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The sums so far, where an earlier stretch left them.
void load(const float* y, std::int64_t y_stride, std::int64_t num_rows, std::int64_t num_columns,
          float* acc) {
  for (std::int64_t row = 0; row < num_rows; ++row)
    std::copy_n(y + row * y_stride, num_columns, acc + row * kColumns);
}

// Adds the bias and writes the columns that exist.
void store(const float* acc, std::int64_t num_rows, std::int64_t num_columns, const float* bias, float* y,
           std::int64_t y_stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float* from = acc + row * kColumns;
    float* to = y + row * y_stride;
    for (std::int64_t n = 0; n < num_columns; ++n) to[n] = bias == nullptr ? from[n] : from[n] + bias[n];
  }
}

// One panel for some rows, by how it is stored: the chain over a stretch,
// continued in acc [num_rows, 32].
void f32_panel(const float* panel, Stretch inner, const LinearInputs& inputs, std::int64_t row,
               std::int64_t num_rows, const kernels::KernelTable& table, float* acc) {
  for (std::int64_t k = inner.begin; k < inner.end; k += kInnerBlock) {
    kernels::LinearArgs args;
    args.x = inputs.tile(row, k);
    args.x_stride = inputs.tile_stride();
    args.panel = panel + k * kColumns;
    args.y = acc;
    args.y_stride = kColumns;
    args.num_rows = num_rows;
    args.num_k = std::min(kInnerBlock, inner.end - k);
    args.accumulate = k > 0;
    args.prefetch = args.panel + kInnerBlock * kColumns;  // the next block of this panel, or the next panel
    args.prefetch_bytes = kInnerBlock * kColumns * 4;
    table.linear_rows(args);
  }
}

void bf16_panel(const std::uint16_t* panel, Stretch inner, const LinearInputs& inputs, std::int64_t row,
                std::int64_t num_rows, const kernels::KernelTable& table, float* acc) {
  for (std::int64_t k = inner.begin; k < inner.end; k += kInnerBlock) {
    kernels::LinearBf16Args args;
    args.x = inputs.tile(row, k);
    args.x_stride = inputs.form().is_pairs ? inputs.tile_stride() : inputs.tile_stride() / 2;
    args.panel = panel + k * kColumns;
    args.y = acc;
    args.num_rows = num_rows;
    args.num_pairs = (std::min(kInnerBlock, inner.end - k) + 1) / 2;
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

void run_panel(const Call& call, const PackedLinear::Piece& piece, std::int64_t panel_idx, Stretch inner,
               const LinearInputs& inputs, std::int64_t row_begin, std::int64_t row, std::int64_t num_rows) {
  alignas(kCacheLineBytes) float acc[kRowBlock * kColumns];
  const std::byte* const panel = piece.panel(panel_idx);
  const std::int64_t in_dim = call.weights.in_dim();
  const std::int64_t column = piece.out_begin + panel_idx * kColumns;
  const std::int64_t num_columns = std::min(kColumns, piece.out_end - column);
  float* const y = &call.y(row_begin + row, column);
  if (inner.begin > 0) load(y, call.y.strides[0], num_rows, num_columns, acc);
  switch (piece.storage) {
    case WeightStorage::kF32:
      f32_panel(reinterpret_cast<const float*>(panel), inner, inputs, row, num_rows, call.table, acc);
      break;
    case WeightStorage::kBf16:
      bf16_panel(reinterpret_cast<const std::uint16_t*>(panel), inner, inputs, row, num_rows, call.table,
                 acc);
      break;
    case WeightStorage::kQuantised:
      quant_panel(piece, panel, in_dim, inputs, row, num_rows, call.table, acc);
      break;
  }
  const bool has_bias = inner.end == in_dim && !call.bias.empty();
  store(acc, num_rows, num_columns, has_bias ? call.bias.data() + column : nullptr, y, call.y.strides[0]);
}

// Inputs of one stretch: quantised panels, which are small, are taken whole.
std::int64_t stretch_length(const PackedLinear::Piece& piece, std::int64_t num_rows, std::int64_t in_dim) {
  if (piece.storage == WeightStorage::kQuantised) return in_dim;
  const std::int64_t fitting = kStretchBytes / (std::min(num_rows, kItemRows) * std::int64_t{sizeof(float)});
  return std::max(kInnerBlock, fitting / kInnerBlock * kInnerBlock);
}

// Panels change fastest: rows of x stay in the second cache while the weights
// stream past.
void run_piece(const Call& call, const PackedLinear::Piece& piece, const LinearInputs& inputs,
               std::int64_t row_begin, std::int64_t num_rows, ThreadPool& pool) {
  const std::int64_t in_dim = call.weights.in_dim();
  const std::int64_t length = stretch_length(piece, num_rows, in_dim);
  const std::int64_t item_rows = piece.storage == WeightStorage::kQuantised ? kRowBlock : kItemRows;
  const std::int64_t num_items = (num_rows + item_rows - 1) / item_rows;
  const std::int64_t num_panels = piece.num_panels();
  for (std::int64_t k = 0; k < in_dim; k += length) {
    const Stretch inner{k, std::min(in_dim, k + length)};
    pool.parallel_for(num_items * num_panels, [&](std::int64_t item, int) {
      const std::int64_t begin = item / num_panels * item_rows;
      const std::int64_t end = std::min(num_rows, begin + item_rows);
      for (std::int64_t row = begin; row < end; row += kRowBlock) {
        run_panel(call, piece, item % num_panels, inner, inputs, row_begin, row,
                  std::min(kRowBlock, end - row));
      }
    });
  }
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
