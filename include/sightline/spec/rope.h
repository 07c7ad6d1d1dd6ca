// Rotary positions: which components are paired, at which frequencies they turn, how contexts are
// extended, and where in a cache the rotation happens. Angles in double, rounded once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

enum class RopePairing : std::uint8_t {
  kNone,         ///< no rotation
  kInterleaved,  ///< components (2i, 2i+1): RoFormer, GGUF llama
  kHalfSplit,    ///< components (i, i + rotary_dim/2): HF weights, GPT-NeoX
};

enum class RopeScalingKind : std::uint8_t {
  kNone,
  kLinear,      ///< angle / factor (Position Interpolation, arXiv:2306.15595)
  kNtk,         ///< theta * factor^(d/(d-2)), fixed
  kDynamicNtk,  ///< theta * (f*l/L - (f-1))^(d/(d-2)) for l > L, HF's rule; l: the rope length of the
                ///< sequence
  kYarn,        ///< by parts, arXiv:2309.00071, with either ramp
  kLongRope,    ///< one divisor per pair: short_divisors up to L, long_divisors beyond
  kLlama3,      ///< three bands by wavelength (Llama 3.1)
  kDivisors,    ///< one divisor per pair, given (GGUF `rope_freqs`), in long_divisors
};

/// YaRN's ramp. Files expect kDimension; the paper's formula is kWavelength. They differ by up to 2.56x.
enum class YarnRamp : std::uint8_t { kDimension, kWavelength };

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;  ///< extension, > 0; 1: none
  std::int64_t original_context =
      0;                          ///< L, tokens trained on; dynamic_ntk, yarn, longrope and llama3 need it
  double low_freq_factor = 1.0;   ///< kLlama3
  double high_freq_factor = 4.0;  ///< kLlama3
  double beta_fast = 32.0;        ///< kYarn: rotations within L above which a pair keeps its frequency
  double beta_slow = 1.0;         ///< kYarn: rotations below which it is divided by factor
  YarnRamp ramp = YarnRamp::kDimension;
  bool truncate = true;  ///< kYarn, kDimension: floor and ceiling of the ramp's ends (gpt-oss: false)
  std::vector<double> short_divisors;  ///< kLongRope, rotary_dim/2 entries
  std::vector<double> long_divisors;   ///< kLongRope, kDivisors

  bool operator==(const RopeScaling&) const = default;
};

/// Whether cached keys are stored rotated (at their rope_pos) or before rotation (rotated when read).
enum class CacheStage : std::uint8_t { kAfterRotation, kBeforeRotation };

/// kText: distances of the text. kInCache: under `first(n) | window(m)` the distance to a kept first key
/// is capped at the cache's length n + m (StreamingLLM, arXiv:2309.17453): those keys meet a second
/// rotated query, see in_cache_rope_pos.
enum class PositionPolicy : std::uint8_t { kText, kInCache };

/// What a length-dependent choice (kDynamicNtk, kLongRope) follows. kCurrentLength is what some programs
/// do and what makes cached keys stale; only the oracle runs it.
enum class RopeLengthPolicy : std::uint8_t { kFixedAtStart, kCurrentLength };

struct RopeSpec {
  RopePairing pairing = RopePairing::kNone;
  int rotary_dim = 0;  ///< leading components that rotate, even, <= qk_head_dim; the others pass through
  double theta = 10000.0;
  RopeScaling scaling;
  /// Multiplies cos and sin of q and of k, so the rotated part of scores by its square. Kept apart from
  /// softmax_scale. YaRN's 0.1*ln(factor)+1 is a value of this field, set by loaders (yarn_magnitude).
  double cos_sin_magnitude = 1.0;
  CacheStage cache_stage = CacheStage::kAfterRotation;
  PositionPolicy position_policy = PositionPolicy::kText;
  RopeLengthPolicy length_policy = RopeLengthPolicy::kFixedAtStart;

  bool operator==(const RopeSpec&) const = default;
};

/// Errors (kInvalidArgument): rotary_dim odd, < 2 or > qk_head_dim (when pairing is not none), theta not
/// finite and positive, factor not finite and positive, missing original_context, divisors of the wrong
/// count, not finite or not positive; magnitude not finite.
[[nodiscard]] Result<void> validate(const RopeSpec& rope, int qk_head_dim);

/// Angular frequency of each pair, radians per token, rotary_dim/2 entries (empty for pairing none):
/// angle(pair i, position p) = p * frequencies[i].
/// `rope_length`: tokens the sequence is set up for, used by kDynamicNtk and kLongRope only.
/// Source: papers and equations at each line of rope.cc.
[[nodiscard]] std::vector<double> rope_frequencies(const RopeSpec& rope, std::int64_t rope_length);

/// 0.1 * ln(factor) + 1 (YaRN eq. 21-22), 1 for factor <= 1.
[[nodiscard]] double yarn_magnitude(double factor);
/// sqrt(1 + ln(factor) / ln(original_context)) (LongRoPE as Phi-3 runs it), 1 for factor <= 1.
[[nodiscard]] double longrope_magnitude(double factor, std::int64_t original_context);

/// The two components of pair i within a head: {2i, 2i+1} or {i, i + rotary_dim/2}.
struct RopePair {
  int first = 0;
  int second = 0;
};
[[nodiscard]] constexpr RopePair rope_pair(const RopeSpec& rope, int pair_idx) {
  if (rope.pairing == RopePairing::kInterleaved) return {2 * pair_idx, 2 * pair_idx + 1};
  return {pair_idx, pair_idx + rope.rotary_dim / 2};
}

/// Under kInCache: the rotary position with which a query at `q_rope_pos`, `q_distance` tokens after its
/// segment's start, meets kept first keys in a cache of `cache_tokens` = n + m tokens.
[[nodiscard]] constexpr std::int64_t in_cache_rope_pos(std::int64_t q_rope_pos, std::int64_t q_distance,
                                                       std::int64_t cache_tokens) {
  const std::int64_t excess = q_distance - (cache_tokens - 1);
  return excess > 0 ? q_rope_pos - excess : q_rope_pos;
}

[[nodiscard]] std::string_view to_string(RopePairing pairing);
[[nodiscard]] std::string_view to_string(RopeScalingKind kind);
[[nodiscard]] std::optional<RopePairing> parse_rope_pairing(std::string_view text);
[[nodiscard]] std::optional<RopeScalingKind> parse_rope_scaling_kind(std::string_view text);

}  // namespace sightline
