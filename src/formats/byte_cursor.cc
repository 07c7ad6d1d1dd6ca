#include "byte_cursor.h"

#include <algorithm>

namespace sightline {

Result<void> ByteCursor::read_bytes(std::span<std::byte> out, std::string_view field) {
  SIGHTLINE_CHECK(require(out.size(), field));
  if (out.empty()) return {};
  if (out.size() >= kBufferBytes) {
    SIGHTLINE_CHECK(source_.read_at(offset_, out));
    offset_ += out.size();
    return {};
  }
  const bool is_buffered =
      offset_ >= buffer_offset_ && offset_ + out.size() <= buffer_offset_ + buffer_.size();
  if (!is_buffered) {
    buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBufferBytes, left())));
    buffer_offset_ = offset_;
    SIGHTLINE_CHECK(source_.read_at(offset_, buffer_));
  }
  std::memcpy(out.data(), buffer_.data() + (offset_ - buffer_offset_), out.size());
  offset_ += out.size();
  return {};
}

Result<void> ByteCursor::skip(std::uint64_t num_bytes, std::string_view field) {
  SIGHTLINE_CHECK(require(num_bytes, field));
  offset_ += num_bytes;
  return {};
}

}  // namespace sightline
