// Blocking of the linear layer. Order of additions: the kernel takes each output as one chain over k
// ascending and continues a stored accumulator, so no border chosen here changes a bit.
#include "sightline/ops/linear.h"

#include <algorithm>

#include "sightline/base/checked.h"

namespace sightline {

namespace {
constexpr std::int64_t kColumns = PackedLinear::kPanelColumns;
static_assert(kColumns == kernels::kPanelColumns);
constexpr std::int64_t kInnerBlock = 256;  // 256 x 32 weights: 32 KiB, stay in the first cache for all rows
constexpr std::int64_t kRowBlock = 96;     // 96 x 32 accumulators: 12 KiB beside them
// Rows of x lie this far apart in the copy: not a power of two, so that they do not share cache sets.
constexpr std::int64_t kTileStride = kInnerBlock + 16;
constexpr std::int64_t kRowsAtOnce = 8 * kRowBlock;  // bounds the copy of x

// Adds the bias and writes the columns that exist.
void store(const float* acc, std::int64_t num_rows, std::int64_t num_columns, const float* bias, float* y,
           std::int64_t y_stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const float* from = acc + row * kColumns;
    float* to = y + row * y_stride;
    for (std::int64_t n = 0; n < num_columns; ++n) to[n] = bias == nullptr ? from[n] : from[n] + bias[n];
  }
}
}  // namespace

Result<PackedLinear> PackedLinear::pack(std::int64_t out_dim, std::int64_t in_dim,
                                        const ReadRows& read_rows) {
  if (out_dim < 1 || in_dim < 1) {
    return fail(ErrorKind::kInvalidArgument, "PackedLinear::pack: out_dim = {}, in_dim = {}, expected >= 1",
                out_dim, in_dim);
  }
  const std::int64_t num_panels = (out_dim - 1) / kColumns + 1;
  const auto panel_size = checked_mul(static_cast<std::uint64_t>(in_dim), kColumns);
  const auto size =
      panel_size ? checked_mul(*panel_size, static_cast<std::uint64_t>(num_panels)) : std::nullopt;
  if (!size || *size > PTRDIFF_MAX / sizeof(float)) {
    return fail(ErrorKind::kInvalidArgument,
                "PackedLinear::pack: out_dim = {} times in_dim = {} is too large", out_dim, in_dim);
  }
  PackedLinear packed;
  packed.out_dim_ = out_dim;
  packed.in_dim_ = in_dim;
  packed.panels_ = AlignedBuffer<float>(static_cast<std::size_t>(*size));
  AlignedBuffer<float> rows(static_cast<std::size_t>(*panel_size));
  for (std::int64_t panel_idx = 0; panel_idx < num_panels; ++panel_idx) {
    const std::int64_t begin = panel_idx * kColumns;
    const std::int64_t num_rows = std::min(kColumns, out_dim - begin);
    SIGHTLINE_CHECK(
        read_rows(begin, begin + num_rows, rows.span().first(static_cast<std::size_t>(num_rows * in_dim))));
    float* to = packed.panels_.data() + panel_idx * in_dim * kColumns;
    for (std::int64_t k = 0; k < in_dim; ++k) {
      for (std::int64_t n = 0; n < kColumns; ++n) {
        to[k * kColumns + n] = n < num_rows ? rows.data()[n * in_dim + k] : 0.0F;
      }
    }
  }
  return packed;
}

void PackedLinear::unpack_row(std::int64_t out_idx, std::span<float> row) const {
  const float* from = panel(out_idx / kColumns) + out_idx % kColumns;
  for (std::size_t k = 0; k < row.size(); ++k) row[k] = from[static_cast<std::int64_t>(k) * kColumns];
}

namespace {
// One panel for a stretch of rows: the whole chain over k, in blocks.
class PanelProduct {
 public:
  PanelProduct(const PackedLinear& weights, std::span<const float> bias, StridedView<float, 2> y,
               const kernels::KernelTable& table)
      : weights_(weights), bias_(bias), y_(y), table_(table) {}

  // `x_block(k)` gives rows [row_begin, ...) from k on; num_k of them lie side by side.
  template <typename XBlock>
  void run(std::int64_t panel_idx, std::int64_t row_begin, std::int64_t num_rows, std::int64_t x_stride,
           std::int64_t inner_block, const XBlock& x_block) const {
    alignas(kCacheLineBytes) float acc[kRowBlock * kColumns];
    for (std::int64_t k = 0; k < weights_.in_dim(); k += inner_block) {
      kernels::LinearArgs args;
      args.x = x_block(k);
      args.x_stride = x_stride;
      args.panel = weights_.panel(panel_idx) + k * kColumns;
      args.y = acc;
      args.y_stride = kColumns;
      args.num_rows = num_rows;
      args.num_k = std::min(inner_block, weights_.in_dim() - k);
      args.accumulate = k > 0;
      table_.linear_rows(args);
    }
    const std::int64_t column = panel_idx * kColumns;
    store(acc, num_rows, std::min(kColumns, weights_.out_dim() - column),
          bias_.empty() ? nullptr : bias_.data() + column, &y_(row_begin, column), y_.strides[0]);
  }

 private:
  const PackedLinear& weights_;
  std::span<const float> bias_;
  StridedView<float, 2> y_;
  const kernels::KernelTable& table_;
};

std::size_t copy_floats(std::int64_t num_rows, std::int64_t in_dim) {
  return static_cast<std::size_t>((in_dim + kInnerBlock - 1) / kInnerBlock * num_rows * kTileStride);
}

// Copies rows to [k block][row][kTileStride].
void copy_rows(StridedView<const float, 2> x, std::int64_t row_begin, std::int64_t num_rows, float* to,
               ThreadPool& pool) {
  pool.parallel_for((num_rows + kRowBlock - 1) / kRowBlock, [&](std::int64_t block, int) {
    const std::int64_t end = std::min(num_rows, (block + 1) * kRowBlock);
    for (std::int64_t row = block * kRowBlock; row < end; ++row) {
      const float* from = &x(row_begin + row, 0);
      for (std::int64_t k = 0; k < x.shape[1]; k += kInnerBlock) {
        std::copy_n(from + k, std::min(kInnerBlock, x.shape[1] - k),
                    to + (k / kInnerBlock * num_rows + row) * kTileStride);
      }
    }
  });
}
}  // namespace

void linear_forward(const PackedLinear& weights, StridedView<const float, 2> x, std::span<const float> bias,
                    StridedView<float, 2> y, ThreadPool& pool, const kernels::KernelTable& table) {
  const PanelProduct product(weights, bias, y, table);
  const std::int64_t num_panels = (weights.out_dim() + kColumns - 1) / kColumns;
  if (x.shape[0] <= kernels::kGroupRows) {  // bound by reading the weights: nothing to gain from a copy
    if (x.shape[0] == 0) return;
    pool.parallel_for(num_panels, [&](std::int64_t panel_idx, int) {
      product.run(panel_idx, 0, x.shape[0], x.strides[0], weights.in_dim(),
                  [&](std::int64_t k) { return &x(0, k); });
    });
    return;
  }
  // Belongs to the calling thread and is kept: no allocation after warm-up.
  thread_local AlignedBuffer<float> tiles;
  for (std::int64_t begin = 0; begin < x.shape[0]; begin += kRowsAtOnce) {
    const std::int64_t num_rows = std::min(kRowsAtOnce, x.shape[0] - begin);
    tiles.reserve_discard(copy_floats(num_rows, weights.in_dim()));
    float* const copied = tiles.data();  // a worker's `tiles` is another one
    copy_rows(x, begin, num_rows, copied, pool);
    const std::int64_t num_row_blocks = (num_rows + kRowBlock - 1) / kRowBlock;
    // Panels change fastest: a block of x stays in the second cache while the weights stream past.
    pool.parallel_for(num_row_blocks * num_panels, [&](std::int64_t item, int) {
      const std::int64_t row = item / num_panels * kRowBlock;
      product.run(item % num_panels, begin + row, std::min(kRowBlock, num_rows - row), kTileStride,
                  kInnerBlock,
                  [&](std::int64_t k) { return copied + (k / kInnerBlock * num_rows + row) * kTileStride; });
    });
  }
}

std::int64_t linear_scratch_bytes(std::int64_t num_rows, std::int64_t in_dim) {
  if (num_rows <= kernels::kGroupRows) return 0;
  return static_cast<std::int64_t>(copy_floats(std::min(num_rows, kRowsAtOnce), in_dim) * sizeof(float));
}

}  // namespace sightline
