// Small numbers drawn from the fuzzer's bytes, front to back. Past the end every number is 0, so that a short
// input is a whole one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string_view>

namespace sightline {

class FuzzInput {
 public:
  FuzzInput(const std::uint8_t* data, std::size_t size) : bytes_(data, size) {}

  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  /// `num_bytes` bytes, the lowest first.
  std::uint64_t bits(int num_bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < num_bytes; ++i) value |= std::uint64_t{byte()} << (8 * i);
    return value;
  }
  /// From 0 to n - 1; one byte where n fits in it.
  std::int64_t below(std::int64_t n) {
    const int num_bytes = n <= 256 ? 1 : n <= 65536 ? 2 : 4;
    return static_cast<std::int64_t>(bits(num_bytes) % static_cast<std::uint64_t>(n));
  }
  std::int64_t between(std::int64_t least, std::int64_t most) { return least + below(most - least + 1); }
  /// True for one byte in `n`.
  bool one_in(std::int64_t n) { return below(n) == n - 1; }
  bool flag() { return (byte() & 1) != 0; }
  /// An element of a range that lives on.
  template <typename Range>
  const auto& pick(const Range& from) {
    return from[static_cast<std::size_t>(below(std::ssize(from)))];
  }
  /// The bytes up to the next `end` (which is taken too), or all that are left.
  std::string_view text_until(std::uint8_t end) {
    std::size_t size = 0;
    while (size < bytes_.size() && bytes_[size] != end) ++size;
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size == bytes_.size() ? size : size + 1);
    return text;
  }
  std::string_view rest() {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    bytes_ = {};
    return text;
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

}  // namespace sightline
