#include "model/compare_weights.h"

#include <algorithm>
#include <cmath>

namespace sightline {
namespace {

constexpr std::int64_t kMatchedColumns = 64;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Root mean square of first - factor * second over that of first.
double error_of(std::span<const float> first, std::span<const float> second, double factor = 1.0) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double d = first[i] - factor * second[i];
    difference += d * d;
    size += static_cast<double>(first[i]) * first[i];
  }
  if (difference == 0) return 0.0;
  return size > 0 ? std::sqrt(difference / size) : INFINITY;
}

// The row of a head at which internal row `i` lies when its rotary rows are reordered.
std::int64_t reordered(std::int64_t i, int rotary_dim, bool to_neighbours) {
  if (i >= rotary_dim) return i;
  const std::int64_t half = rotary_dim / 2;
  return to_neighbours ? 2 * (i % half) + i / half : i % 2 * half + i / 2;
}

std::vector<float> with_row_order(const BlockShape& shape, std::span<const float> x, bool to_neighbours) {
  std::vector<float> out(x.size());
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    const std::int64_t head = row / shape.head_dim * shape.head_dim;
    const std::int64_t from = head + reordered(row - head, shape.rotary_dim, to_neighbours);
    std::copy_n(x.begin() + from * shape.cols, shape.cols, out.begin() + row * shape.cols);
  }
  return out;
}

// Which head of `second` each head of `first` is; empty when some is none.
std::vector<std::int64_t> head_order(const BlockShape& shape, std::span<const float> first,
                                     std::span<const float> second, double tolerance) {
  const std::int64_t num_heads = shape.rows / shape.head_dim;
  const auto size = at(shape.head_dim * shape.cols);
  std::vector<std::int64_t> order;
  for (std::int64_t h = 0; h < num_heads; ++h) {
    std::int64_t found = -1;
    for (std::int64_t g = 0; g < num_heads && found < 0; ++g) {
      if (std::ranges::find(order, g) != order.end()) continue;
      if (error_of(first.subspan(at(h) * size, size), second.subspan(at(g) * size, size)) <= tolerance)
        found = g;
    }
    if (found < 0) return {};
    order.push_back(found);
  }
  return order;
}

// Rows in an order made for heads of another width. Most are excluded by the first columns.
bool find_row_width(const BlockShape& shape, std::span<const float> first, std::span<const float> second,
                    double tolerance, WeightComparison& result) {
  const auto error_over = [&](const std::vector<std::int64_t>& from, std::int64_t cols) {
    double difference = 0, size = 0;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      const auto right = first.subspan(at(from[at(row)] * shape.cols), at(cols));
      const auto got = second.subspan(at(row * shape.cols), at(cols));
      for (std::size_t i = 0; i < right.size(); ++i) {
        const double d = right[i] - static_cast<double>(got[i]);
        difference += d * d;
        size += static_cast<double>(right[i]) * right[i];
      }
    }
    return size > 0 ? std::sqrt(difference / size) : INFINITY;
  };
  for (const int width : other_head_widths(shape.rows, shape.head_dim)) {
    for (const RowMistake mistake : {RowMistake::kRead, RowMistake::kWritten}) {
      const auto from = misplaced_rows(mistake, shape.rows, shape.head_dim, width, RopePairing::kHalfSplit);
      // A few columns hold less of the rounding than all do, or more.
      if (error_over(from, std::min(shape.cols, kMatchedColumns)) > 2 * tolerance) continue;
      if (error_over(from, shape.cols) > tolerance) continue;
      result.row_mistake = mistake;
      result.row_width = width;
      return true;
    }
  }
  return false;
}

double best_factor(std::span<const float> first, std::span<const float> second) {
  double product = 0, size = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    product += static_cast<double>(first[i]) * second[i];
    size += static_cast<double>(first[i]) * first[i];
  }
  return size > 0 ? product / size : 1.0;
}

std::vector<float> transposed(const BlockShape& shape, std::span<const float> x) {
  std::vector<float> out(x.size());
  for (std::int64_t i = 0; i < shape.rows; ++i) {
    for (std::int64_t j = 0; j < shape.cols; ++j) out[at(j * shape.rows + i)] = x[at(i * shape.cols + j)];
  }
  return out;
}

}  // namespace

double rounding_of(DataType type) {
  switch (type) {
    case DataType::kF32:
      return 1e-6;
    case DataType::kF16:
      return 1e-3;
    case DataType::kBF16:
      return 5e-3;
    case DataType::kQ8_0:
      return 2e-2;
    default:
      return 0.2;  // 4 and 5 bits
  }
}

void relate(const BlockShape& shape, std::span<const float> first, std::span<const float> second,
            double tolerance, WeightComparison& result) {
  result.relative_error = error_of(first, second);
  const auto explained = [&](WeightRelation relation) { result.relation = relation; };
  if (result.relative_error == 0) return explained(WeightRelation::kEqual);
  if (result.relative_error <= tolerance) return explained(WeightRelation::kRounding);
  if (shape.rotary_dim > 0) {
    for (const bool to_neighbours : {true, false}) {
      if (error_of(first, with_row_order(shape, second, to_neighbours)) <= tolerance) {
        return explained(WeightRelation::kRowOrder);
      }
    }
  }
  const bool rotates_whole = shape.head_dim > 0 && shape.rotary_dim == shape.head_dim;
  if (rotates_whole && find_row_width(shape, first, second, tolerance, result)) {
    return explained(WeightRelation::kRowWidth);
  }
  if (shape.head_dim > 0) {
    result.head_order = head_order(shape, first, second, tolerance);
    if (!result.head_order.empty()) return explained(WeightRelation::kHeadOrder);
  }
  result.factor = best_factor(first, second);
  if (result.factor != 0 && error_of(first, second, 1 / result.factor) <= tolerance) {
    return explained(WeightRelation::kScaled);
  }
  result.factor = 1;
  if (shape.rows == shape.cols && error_of(first, transposed(shape, second)) <= tolerance) {
    return explained(WeightRelation::kTransposed);
  }
  explained(WeightRelation::kOther);
}

bool are_rows_permuted(std::int64_t rows, std::int64_t cols, std::span<const float> first,
                       std::span<const float> second, double tolerance) {
  const std::int64_t width = std::min(cols, kMatchedColumns);
  std::vector<bool> taken(at(rows), false);
  for (std::int64_t i = 0; i < rows; ++i) {
    bool found = false;
    for (std::int64_t j = 0; j < rows && !found; ++j) {
      if (taken[at(j)]) continue;
      if (error_of(first.subspan(at(i * cols), at(width)), second.subspan(at(j * cols), at(width))) <=
          tolerance) {
        taken[at(j)] = found = true;
      }
    }
    if (!found) return false;
  }
  return true;
}

}  // namespace sightline
