// Size arithmetic on numbers that come from files: overflow is a value, never a wrap.
#pragma once

#include <cstdint>
#include <optional>

namespace sightline {

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

[[nodiscard]] constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

/// `a` rounded up to a multiple of `alignment` (a power of two).
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_align(std::uint64_t a, std::uint64_t alignment) {
  const auto sum = checked_add(a, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace sightline
