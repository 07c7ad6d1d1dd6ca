#include "sightline/formats/tensor_file.h"

#include <algorithm>
#include <numeric>

#include "quote_name.h"
#include "sightline/base/checked.h"
#include "sightline/formats/quantize.h"

namespace sightline {

namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{256} << 10;

Result<void> check_range(const std::string& name, std::span<const BytesPtr> files, const TensorInfo& info) {
  if (info.file_idx >= files.size()) {
    return fail(ErrorKind::kInvalidArgument, "{}: tensor {}: file_idx = {} of {} files", name,
                quote_name(info.name), info.file_idx, files.size());
  }
  const auto num_elements = checked_num_elements(info.shape);
  if (!num_elements) {
    return fail(ErrorKind::kInvalidContent,
                "{}: tensor {}: shape {} is refused (rank over {}, or too many elements)", name,
                quote_name(info.name), shape_to_string(info.shape), kMaxTensorRank);
  }
  const auto num_bytes = row_bytes(info.type, static_cast<std::uint64_t>(*num_elements));
  if (!num_bytes || *num_bytes != info.num_bytes) {
    return fail(ErrorKind::kInvalidContent, "{}: tensor {}: {} bytes are no {} of shape {}", name,
                quote_name(info.name), info.num_bytes, to_string(info.type), shape_to_string(info.shape));
  }
  const auto& file = *files[info.file_idx];
  const auto end = checked_add(info.file_offset, info.num_bytes);
  if (!end || *end > file.size()) {
    return fail(ErrorKind::kInvalidContent,
                "{}: tensor {}: {} bytes at byte {} reach past the end of the file at {}", file.name(),
                quote_name(info.name), info.num_bytes, info.file_offset, file.size());
  }
  return {};
}

}  // namespace

Result<TensorSource> TensorSource::create(std::string name, std::vector<BytesPtr> files,
                                          std::vector<TensorInfo> tensors) {
  if (tensors.size() > kMaxTensors) {
    return fail(ErrorKind::kInvalidContent, "{}: {} tensors, over the limit of {}", name, tensors.size(),
                kMaxTensors);
  }
  for (const auto& info : tensors) SIGHTLINE_CHECK(check_range(name, files, info));
  TensorSource source;
  source.by_name_.resize(tensors.size());
  std::iota(source.by_name_.begin(), source.by_name_.end(), 0U);
  std::ranges::sort(source.by_name_, {}, [&](std::uint32_t i) { return std::string_view(tensors[i].name); });
  for (std::size_t i = 1; i < source.by_name_.size(); ++i) {
    const auto& info = tensors[source.by_name_[i]];
    if (tensors[source.by_name_[i - 1]].name == info.name) {
      return fail(ErrorKind::kInvalidContent, "{}: tensor name {} occurs twice", name, quote_name(info.name));
    }
  }
  source.name_ = std::move(name);
  source.files_ = std::move(files);
  source.tensors_ = std::move(tensors);
  return source;
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto name_of = [&](std::uint32_t i) { return std::string_view(tensors_[i].name); };
  const auto it = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return it != by_name_.end() && name_of(*it) == name ? &tensors_[*it] : nullptr;
}

Result<void> TensorSource::read_into(const TensorInfo& info, std::span<std::byte> out) const {
  if (info.file_idx >= files_.size() || out.size() != info.num_bytes) {
    return fail(ErrorKind::kInvalidArgument, "read_into: tensor {} has {} bytes, the buffer {}",
                quote_name(info.name), info.num_bytes, out.size());
  }
  return files_[info.file_idx]->read_at(info.file_offset, out);
}

Result<void> TensorSource::check_rows(const TensorInfo& info, std::int64_t row_begin,
                                      std::int64_t row_end) const {
  if (info.file_idx >= files_.size() || row_begin < 0 || row_begin > row_end || row_end > info.num_rows()) {
    return fail(ErrorKind::kInvalidArgument, "read_rows: tensor {} of shape {} has no rows [{}, {})",
                quote_name(info.name), shape_to_string(info.shape), row_begin, row_end);
  }
  if (!row_bytes(info.type, static_cast<std::uint64_t>(info.row_length()))) {
    return fail(ErrorKind::kInvalidContent, "{}: tensor {}: rows of {} values of {} do not start on a byte",
                files_[info.file_idx]->name(), quote_name(info.name), info.row_length(),
                to_string(info.type));
  }
  return {};
}

Result<void> TensorSource::read_rows(const TensorInfo& info, std::int64_t row_begin, std::int64_t row_end,
                                     std::span<std::byte> out) const {
  SIGHTLINE_CHECK(check_rows(info, row_begin, row_end));
  const std::uint64_t bytes = *row_bytes(info.type, static_cast<std::uint64_t>(info.row_length()));
  if (out.size() != bytes * static_cast<std::uint64_t>(row_end - row_begin)) {
    return fail(ErrorKind::kInvalidArgument, "read_rows: tensor {}: {} rows of {} bytes into a buffer of {}",
                quote_name(info.name), row_end - row_begin, bytes, out.size());
  }
  return files_[info.file_idx]->read_at(info.file_offset + bytes * static_cast<std::uint64_t>(row_begin),
                                        out);
}

Result<void> TensorSource::read_f32(const TensorInfo& info, std::int64_t row_begin, std::int64_t row_end,
                                    std::span<float> out) const {
  SIGHTLINE_CHECK(check_rows(info, row_begin, row_end));
  const auto length = static_cast<std::uint64_t>(info.row_length());
  if (out.size() != length * static_cast<std::uint64_t>(row_end - row_begin)) {
    return fail(ErrorKind::kInvalidArgument, "read_f32: tensor {}: {} rows of {} values into a buffer of {}",
                quote_name(info.name), row_end - row_begin, length, out.size());
  }
  if (!is_readable(info.type)) {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: tensor {}: type {} cannot be read",
                files_[info.file_idx]->name(), info.file_offset, quote_name(info.name), to_string(info.type));
  }
  if (out.empty()) return {};
  if (info.type == DataType::kF32) return read_rows(info, row_begin, row_end, std::as_writable_bytes(out));

  const std::uint64_t bytes = *row_bytes(info.type, length);
  const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPieceBytes / bytes));
  std::vector<std::byte> piece(bytes * static_cast<std::uint64_t>(std::min(step, row_end - row_begin)));
  for (std::int64_t row = row_begin; row < row_end; row += step) {
    const std::int64_t last = std::min(row + step, row_end);
    const auto num_rows = static_cast<std::uint64_t>(last - row);
    const auto stored = std::span(piece).first(num_rows * bytes);
    SIGHTLINE_CHECK(read_rows(info, row, last, stored));
    const auto begin = static_cast<std::uint64_t>(row - row_begin) * length;
    SIGHTLINE_CHECK(dequantize_row(info.type, stored, out.subspan(begin, num_rows * length)));
  }
  return {};
}

}  // namespace sightline
