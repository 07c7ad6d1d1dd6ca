#include "attention/pack_rows.h"

#include <algorithm>

#include "sightline/kernels/rope.h"

namespace sightline {

namespace {

void read_row(const KeyStream& stream, const WorkItem& item, int row, const StridedView<const float, 3>& from,
              const RopeTable* rope, float* to) {
  const std::int64_t dims = from.shape[2];
  if (row >= item.num_rows()) {
    std::fill_n(to, dims, 0.0F);
    return;
  }
  const std::int64_t q_row = stream.q_rows[static_cast<std::size_t>(item.query_of(row))];
  gather_row(from.data + q_row * from.strides[0] + item.head_of(row) * from.strides[1], from.strides[2], dims,
             to);
  if (rope != nullptr && rope->active()) {
    kernels::rotate_head(rope->pairs(), rope->cos(q_row), rope->sin(q_row), to, 1, to, 1);
  }
}

}  // namespace

void pack_rows(const KeyStream& stream, const WorkItem& item, const StridedView<const float, 3>& from,
               const RopeTable* rope, float* rows, float* to) {
  const std::int64_t dims = from.shape[2];
  // Twelve rows first and then their transpose, so that writes are whole lines.
  for (int first = 0; first < item.num_rows(); first += kernels::kGroupRows) {
    for (int r = 0; r < kernels::kGroupRows; ++r) {
      read_row(stream, item, first + r, from, rope, rows + r * dims);
    }
    float* group = to + first * dims;
    for (std::int64_t i = 0; i < dims; ++i) {
      for (int r = 0; r < kernels::kGroupRows; ++r) group[i * kernels::kGroupRows + r] = rows[r * dims + i];
    }
  }
}

}  // namespace sightline
