#include "attention/pack_rows.h"

#include <algorithm>

#include "sightline/kernels/rope.h"

namespace sightline {

namespace {

// One row where it lies when there is nothing to do, else in `buffer`.
const float* read_row(const KeyStream& stream, const WorkItem& item, int row,
                      const StridedView<const float, 3>& from, const RopeTable* rope, float* buffer) {
  const std::int64_t dims = from.shape[2];
  if (row >= item.num_rows()) {
    std::fill_n(buffer, dims, 0.0F);
    return buffer;
  }
  const std::int64_t q_row = stream.q_rows[static_cast<std::size_t>(item.query_of(row))];
  const float* data = from.data + q_row * from.strides[0] + item.head_of(row) * from.strides[1];
  const bool rotates = rope != nullptr && rope->active();
  if (from.strides[2] == 1 && !rotates) return data;
  gather_row(data, from.strides[2], dims, buffer);
  if (rotates) kernels::rotate_head(rope->pairs(), rope->cos(q_row), rope->sin(q_row), buffer, 1, buffer, 1);
  return buffer;
}

}  // namespace

void pack_rows(const kernels::KernelTable& table, const KeyStream& stream, const WorkItem& item,
               const StridedView<const float, 3>& from, const RopeTable* rope, float* rows, float* to) {
  const std::int64_t dims = from.shape[2];
  for (int first = 0; first < item.num_rows(); first += kernels::kGroupRows) {
    const float* group[kernels::kGroupRows];
    for (int r = 0; r < kernels::kGroupRows; ++r) {
      group[r] = read_row(stream, item, first + r, from, rope, rows + r * dims);
    }
    table.pack_columns(group, kernels::kGroupRows, static_cast<int>(dims), to + first * dims);
  }
}

}  // namespace sightline
