#include "sightline/ops/embedding.h"

namespace sightline {

void embedding_forward(const PackedLinear& table, std::span<const std::int32_t> ids, float scale,
                       StridedView<float, 2> y, ThreadPool& pool) {
  const std::int64_t dim = table.in_dim();
  pool.parallel_for(static_cast<std::int64_t>(ids.size()), [&](std::int64_t i, int) {
    const std::span<float> row(&y(i, 0), static_cast<std::size_t>(dim));
    table.unpack_row(ids[static_cast<std::size_t>(i)], row);
    if (scale == 1.0F) return;
    for (float& value : row) value *= scale;
  });
}

}  // namespace sightline
