// Blocking of the linear layer. Order of additions: the kernel takes each output as one chain over k
// ascending and continues a stored accumulator, so no border chosen here changes a bit.
#include "sightline/ops/linear.h"

#include <algorithm>
#include <cstring>

#include "sightline/base/checked.h"

namespace sightline {

namespace {
constexpr std::int64_t kColumns = PackedLinear::kPanelColumns;
constexpr std::int64_t kInnerBlock = 256;  // 256 x 32 weights: 32 KiB, stay in the first cache for all rows
constexpr std::int64_t kRowBlock = 96;     // 96 x 32 accumulators: 12 KiB beside them

// acc[row][column] (+)= sum over k of x[row][k] * w[k][column].
void accumulate(const float* x, std::int64_t x_stride, std::int64_t num_rows, const float* w,
                std::int64_t num_k, bool first, float* acc) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* out = acc + row * kColumns;
    if (first) std::fill_n(out, kColumns, 0.0F);
    for (std::int64_t k = 0; k < num_k; ++k) {
      const float value = x[row * x_stride + k];
      const float* weights = w + k * kColumns;
      for (std::int64_t n = 0; n < kColumns; ++n) out[n] += value * weights[n];
    }
  }
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

void linear_forward(const PackedLinear& weights, StridedView<const float, 2> x, std::span<const float> bias,
                    StridedView<float, 2> y, ThreadPool& pool) {
  const std::int64_t num_rows = x.shape[0];
  const std::int64_t num_panels = (weights.out_dim() + kColumns - 1) / kColumns;
  const std::int64_t num_row_blocks = (num_rows + kRowBlock - 1) / kRowBlock;
  pool.parallel_for(num_row_blocks * num_panels, [&](std::int64_t item, int) {
    const std::int64_t panel_idx = item % num_panels;
    const std::int64_t row_begin = item / num_panels * kRowBlock;
    const std::int64_t rows = std::min(kRowBlock, num_rows - row_begin);
    alignas(kCacheLineBytes) float acc[kRowBlock * kColumns];
    for (std::int64_t k = 0; k < weights.in_dim(); k += kInnerBlock) {
      accumulate(&x(row_begin, k), x.strides[0], rows, weights.panel(panel_idx) + k * kColumns,
                 std::min(kInnerBlock, weights.in_dim() - k), k == 0, acc);
    }
    const std::int64_t column = panel_idx * kColumns;
    store(acc, rows, std::min(kColumns, weights.out_dim() - column),
          bias.empty() ? nullptr : bias.data() + column, &y(row_begin, column), y.strides[0]);
  });
}

}  // namespace sightline
