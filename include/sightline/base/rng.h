// Random numbers by counter: the same key gives the same number in any order, on any thread.
#pragma once

#include <cstdint>

namespace sightline {

/// A bijective mixer of 64 bits (the finaliser of splitmix64, Steele et al. 2014).
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// The counter of one dropout decision. Positions, not rows or slots: a replay in another layout
/// (a chunk, a cache, the backward) draws the same number.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::int64_t layer = 0;
  std::int64_t q_head = 0;
  std::int64_t segment = 0;
  std::int64_t q_pos = 0;
  std::int64_t kv_pos = 0;
};

/// Uniform in [0, 1), 24 bits, from a counter.
[[nodiscard]] constexpr float uniform_at(const DropoutKey& key) {
  std::uint64_t x = mix64(key.seed);
  x = mix64(x ^ static_cast<std::uint64_t>(key.layer));
  x = mix64(x ^ static_cast<std::uint64_t>(key.q_head));
  x = mix64(x ^ static_cast<std::uint64_t>(key.segment));
  x = mix64(x ^ static_cast<std::uint64_t>(key.q_pos));
  x = mix64(x ^ static_cast<std::uint64_t>(key.kv_pos));
  return static_cast<float>(x >> 40) * 0x1.0p-24F;
}

/// A sequential generator for sampling and tests: state = seed, then mix64 of a counter.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : seed_(mix64(seed)) {}
  [[nodiscard]] std::uint64_t next_u64() { return mix64(seed_ ^ mix64(counter_++)); }
  /// Uniform in [0, 1) with 53 bits.
  [[nodiscard]] double next_uniform() { return static_cast<double>(next_u64() >> 11) * 0x1.0p-53; }
  /// Uniform integer in [0, n), n > 0 (multiply-shift; bias below 2^-32 for n < 2^32).
  [[nodiscard]] std::uint64_t next_below(std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next_u64()) * n) >> 64);
  }
  /// Standard normal (Box-Muller, one value a call).
  [[nodiscard]] double next_normal();

 private:
  std::uint64_t seed_;
  std::uint64_t counter_ = 0;
};

}  // namespace sightline
