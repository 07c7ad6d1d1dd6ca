// WeightReader: rows of a logical matrix from the tensors of a file, brought to the internal order.
#include <algorithm>
#include <type_traits>

#include "model/weight_layout.h"
#include "sightline/formats/quantize.h"

namespace sightline {

Result<void> WeightReader::read(std::int64_t begin, std::int64_t end, std::span<float> out) {
  return read_rows(begin, end, std::max<std::int64_t>(ref_.cols, 1), out);
}

Result<void> WeightReader::read(std::int64_t begin, std::int64_t end, std::span<QuantBlock> out) {
  return read_rows(begin, end, std::ssize(out) / (end - begin), out);
}

template <typename T>
Result<void> WeightReader::read_rows(std::int64_t begin, std::int64_t end, std::int64_t width,
                                     std::span<T> out) {
  std::int64_t part_begin = 0;
  for (const WeightPart& part : ref_.parts) {
    const std::int64_t from = std::max(begin, part_begin);
    const std::int64_t to = std::min(end, part_begin + part.num_rows);
    if (from < to) {
      SIGHTLINE_CHECK(read_part(part, from - part_begin, to - part_begin, width,
                                out.subspan(static_cast<std::size_t>((from - begin) * width),
                                            static_cast<std::size_t>((to - from) * width))));
    }
    part_begin += part.num_rows;
  }
  return {};
}

template <typename T>
Result<void> WeightReader::read_part(const WeightPart& part, std::int64_t begin, std::int64_t end,
                                     std::int64_t width, std::span<T> out) {
  const TensorInfo* info = source_.find(part.tensor);
  if (info == nullptr) {
    return fail(ErrorKind::kInvalidContent, "{}: tensor '{}' is missing", source_.name(), part.tensor);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (part.transposed) return read_transposed(part, *info, begin, end, out);
  }
  if (part.order == RowOrder::kNeighbours || ref_.cols == 0) {
    return read_neighbours(part, *info, begin, end, width, out);
  }
  return fetch(*info, part.first_row + begin, part.first_row + end, out);
}

Result<void> WeightReader::fetch(const TensorInfo& info, std::int64_t begin, std::int64_t end,
                                 std::span<float> out) const {
  return source_.read_f32(info, begin, end, out);
}

Result<void> WeightReader::fetch(const TensorInfo& info, std::int64_t begin, std::int64_t end,
                                 std::span<QuantBlock> out) {
  const std::size_t block_bytes = data_type_info(info.type).block_bytes;
  const std::optional<QuantKind> kind = quant_kind(info.type);
  if (!kind) {
    return fail(ErrorKind::kInternal, "WeightReader: tensor '{}' holds no blocks", info.name);
  }
  stored_.resize(out.size() * block_bytes);
  SIGHTLINE_CHECK(source_.read_rows(info, begin, end, stored_));
  for (std::size_t i = 0; i < out.size(); ++i) split_block(*kind, stored_.data() + i * block_bytes, out[i]);
  return {};
}

template <typename T>
Result<void> WeightReader::read_neighbours(const WeightPart& part, const TensorInfo& info, std::int64_t begin,
                                           std::int64_t end, std::int64_t width, std::span<T> out) {
  // A vector is one row of its tensor and is read whole; of a matrix one head is held at a time.
  const bool is_vector = ref_.cols == 0;
  const bool permuted = part.order == RowOrder::kNeighbours;
  const std::int64_t head_dim = permuted ? part.head_dim : part.num_rows;
  const std::int64_t half = part.rotary_dim / 2;
  std::vector<T>& rows = held(T());
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = is_vector ? 0 : row / head_dim * head_dim;
    if (held_tensor_ != &info || held_begin_ != first) {
      const std::int64_t count = is_vector ? info.num_elements() : head_dim;
      rows.resize(static_cast<std::size_t>(count * width));
      SIGHTLINE_CHECK(is_vector ? fetch(info, 0, 1, std::span<T>(rows))
                                : fetch(info, part.first_row + first, part.first_row + first + head_dim,
                                        std::span<T>(rows)));
      held_tensor_ = &info;
      held_begin_ = first;
    }
    std::int64_t in_head = row % head_dim;
    if (permuted && in_head < part.rotary_dim) in_head = 2 * (in_head % half) + in_head / half;
    const std::int64_t source_row =
        is_vector ? part.first_row + row / head_dim * head_dim + in_head : in_head;
    std::copy_n(rows.begin() + source_row * width, width, out.begin() + (row - begin) * width);
  }
  return {};
}

Result<void> WeightReader::read_transposed(const WeightPart& part, const TensorInfo& info, std::int64_t begin,
                                           std::int64_t end, std::span<float> out) {
  const std::int64_t num_columns = info.row_length();
  if (held_tensor_ != &info) {
    held_.resize(static_cast<std::size_t>(info.num_elements()));
    SIGHTLINE_CHECK(source_.read_f32(info, 0, info.num_rows(), held_));
    held_tensor_ = &info;
    held_begin_ = 0;
  }
  for (std::int64_t row = begin; row < end; ++row) {
    const float* column = held_.data() + part.first_row + row;
    float* const to = out.data() + (row - begin) * ref_.cols;
    // Rotated rows of transposed files would need both; no family has them.
    for (std::int64_t i = 0; i < ref_.cols; ++i) to[i] = column[i * num_columns];
  }
  return {};
}

}  // namespace sightline
