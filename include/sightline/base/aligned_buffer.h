// Memory for kernels: aligned to a cache line, counted, never throwing out of a Result function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace sightline {

inline constexpr std::size_t kCacheLineBytes = 64;

/// An owned array of trivially copyable T, aligned to 64 bytes and uninitialised.
/// Throws std::bad_alloc when memory is refused (the command line ends with 71).
template <typename T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t size) : size_(size) {
    if (size == 0) return;
    if (size > (SIZE_MAX - kCacheLineBytes) / sizeof(T)) throw std::bad_alloc();
    const std::size_t bytes = (size * sizeof(T) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    data_.reset(static_cast<T*>(std::aligned_alloc(kCacheLineBytes, bytes)));
    if (!data_) throw std::bad_alloc();
  }

  [[nodiscard]] T* data() { return data_.get(); }
  [[nodiscard]] const T* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return data_.get()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return data_.get()[i]; }
  [[nodiscard]] std::span<T> span() { return {data(), size_}; }
  [[nodiscard]] std::span<const T> span() const { return {data(), size_}; }

  /// Grows to at least `size` entries; contents are lost when it grows. Never shrinks.
  void reserve_discard(std::size_t size) {
    if (size > size_) *this = AlignedBuffer(size);
  }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace sightline
