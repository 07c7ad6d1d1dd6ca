// Reads a ByteSource forward through a fixed buffer. Every read is checked against the bytes left, so
// that nothing is allocated for what is not there; errors name file, byte offset and field.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"

namespace sightline {

class ByteCursor {
 public:
  static constexpr std::size_t kBufferBytes = std::size_t{64} << 10;

  explicit ByteCursor(const ByteSource& source) : source_(source) {}

  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] std::uint64_t left() const { return source_.size() - offset_; }

  /// "FILE: byte OFFSET: TEXT", at the current offset.
  template <typename... Args>
  [[nodiscard]] tl::unexpected<Error> error(fmt::format_string<Args...> text, Args&&... args) const {
    return error_at(offset_, text, std::forward<Args>(args)...);
  }
  template <typename... Args>
  [[nodiscard]] tl::unexpected<Error> error_at(std::uint64_t offset, fmt::format_string<Args...> text,
                                               Args&&... args) const {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: {}", source_.name(), offset,
                fmt::format(text, std::forward<Args>(args)...));
  }

  /// Fails unless `num_bytes` more are there.
  [[nodiscard]] Result<void> require(std::uint64_t num_bytes, std::string_view field) const {
    if (num_bytes <= left()) return {};
    return error("{}: {} bytes expected, {} left in the file", field, num_bytes, left());
  }

  /// A little-endian number.
  template <typename T>
  [[nodiscard]] Result<T> read(std::string_view field) {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    SIGHTLINE_CHECK(read_bytes(std::as_writable_bytes(std::span(&value, 1)), field));
    return value;
  }

  [[nodiscard]] Result<void> read_bytes(std::span<std::byte> out, std::string_view field);
  [[nodiscard]] Result<void> skip(std::uint64_t num_bytes, std::string_view field);
  /// Goes back (or forward) to an offset within the file.
  void seek(std::uint64_t offset) { offset_ = offset; }

 private:
  const ByteSource& source_;
  std::uint64_t offset_ = 0;
  std::uint64_t buffer_offset_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace sightline
