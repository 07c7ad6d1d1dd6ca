// Rotary frequencies of every scaling kind. Nothing here rotates anything.
#include "sightline/spec/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "spec/words.h"

namespace sightline {

namespace {

constexpr double kTau = 2.0 * std::numbers::pi;

// theta_i = theta^(-2i/d): RoFormer, arXiv:2104.09864, section 3.3.
std::vector<double> base_frequencies(double theta, int rotary_dim) {
  std::vector<double> out(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return out;
}

// theta' = theta * ratio^(d/(d-2)): the highest frequency stays, the lowest is divided by ratio.
// NTK-aware interpolation, YaRN (arXiv:2309.00071) section 3.1. With d = 2 the only frequency is 1.
double ntk_theta(double theta, double ratio, int rotary_dim) {
  if (rotary_dim <= 2) return theta;
  return theta * std::pow(ratio, rotary_dim / (rotary_dim - 2.0));
}

// Share of the interpolated frequency (1: divided by factor, 0: kept) at each pair.
double yarn_interpolated_share(const RopeScaling& scaling, const RopeSpec& rope, int pair_idx,
                               double frequency) {
  const auto context = static_cast<double>(scaling.original_context);
  if (scaling.ramp == YarnRamp::kWavelength) {
    // gamma(r), r = L / wavelength: arXiv:2309.00071 eq. 17 to 20, alpha = beta_slow, beta = beta_fast.
    const double rotations = context * frequency / kTau;
    return 1.0 -
           std::clamp((rotations - scaling.beta_slow) / (scaling.beta_fast - scaling.beta_slow), 0.0, 1.0);
  }
  // Linear in the dimension index, as every program reads the files: c(r) = d ln(L / (2 pi r)) / (2 ln theta)
  // (find_correction_dim of the YaRN repository).
  const auto dimension = [&](double rotations) {
    return rope.rotary_dim * std::log(context / (rotations * kTau)) / (2.0 * std::log(rope.theta));
  };
  double low = dimension(scaling.beta_fast);
  double high = dimension(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.rotary_dim - 1.0);
  if (low == high) high += 0.001;  // as the programs do, against 0 / 0
  return std::clamp((pair_idx - low) / (high - low), 0.0, 1.0);
}

// Three bands by wavelength: Llama 3.1's model configuration (apply_scaling in Meta's code, `llama3` in HF).
double llama3_frequency(const RopeScaling& scaling, double frequency) {
  const double rotations =
      static_cast<double>(scaling.original_context) * frequency / kTau;  // L / wavelength
  if (rotations > scaling.high_freq_factor) return frequency;
  if (rotations < scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (rotations - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const RopeSpec& rope, std::int64_t rope_length) {
  if (rope.pairing == RopePairing::kNone) return {};
  const RopeScaling& scaling = rope.scaling;
  double theta = rope.theta;
  if (scaling.kind == RopeScalingKind::kNtk) theta = ntk_theta(theta, scaling.factor, rope.rotary_dim);
  if (scaling.kind == RopeScalingKind::kDynamicNtk && rope_length > scaling.original_context) {
    // theta * (f l / L - (f - 1))^(d/(d-2)): HF's rule; YaRN section 3.3 has f = 1.
    const double stretch = static_cast<double>(rope_length) / static_cast<double>(scaling.original_context);
    theta = ntk_theta(theta, scaling.factor * stretch - (scaling.factor - 1.0), rope.rotary_dim);
  }
  std::vector<double> out = base_frequencies(theta, rope.rotary_dim);
  for (std::size_t i = 0; i < out.size(); ++i) {
    switch (scaling.kind) {
      case RopeScalingKind::kNone:
      case RopeScalingKind::kNtk:
      case RopeScalingKind::kDynamicNtk:
        break;
      case RopeScalingKind::kLinear:
        out[i] /= scaling.factor;  // Position Interpolation, arXiv:2306.15595 eq. 4
        break;
      case RopeScalingKind::kYarn: {
        // h(theta_i) = (1 - gamma) theta_i / s + gamma theta_i: arXiv:2309.00071 eq. 19.
        const double share = yarn_interpolated_share(scaling, rope, static_cast<int>(i), out[i]);
        out[i] = share * out[i] / scaling.factor + (1.0 - share) * out[i];
        break;
      }
      case RopeScalingKind::kLongRope:
        // One divisor a pair: arXiv:2402.13753 eq. 3, with the short list within the original context
        // (Phi-3).
        out[i] /=
            (rope_length > scaling.original_context ? scaling.long_divisors : scaling.short_divisors)[i];
        break;
      case RopeScalingKind::kLlama3:
        out[i] = llama3_frequency(scaling, out[i]);
        break;
      case RopeScalingKind::kDivisors:
        out[i] /= scaling.long_divisors[i];
        break;
    }
  }
  return out;
}

double yarn_magnitude(double factor) {
  return factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0;  // arXiv:2309.00071 eq. 22
}

double longrope_magnitude(double factor, std::int64_t original_context) {
  if (factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(factor) / std::log(static_cast<double>(original_context)));
}

namespace {

bool finite_positive(double x) { return std::isfinite(x) && x > 0.0; }

Result<void> validate_divisors(std::string_view name, const std::vector<double>& divisors, int rotary_dim) {
  if (divisors.size() != static_cast<std::size_t>(rotary_dim / 2)) {
    return fail(ErrorKind::kInvalidArgument, "rope: scaling.{} has {} entries, rotary_dim = {} needs {}",
                name, divisors.size(), rotary_dim, rotary_dim / 2);
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    if (!finite_positive(divisors[i])) {
      return fail(ErrorKind::kInvalidArgument, "rope: scaling.{}[{}] = {}, expected finite and positive",
                  name, i, divisors[i]);
    }
  }
  return {};
}

Result<void> validate_scaling(const RopeSpec& rope) {
  const RopeScaling& s = rope.scaling;
  if (!finite_positive(s.factor)) {
    return fail(ErrorKind::kInvalidArgument, "rope: scaling.factor = {}, expected finite and positive",
                s.factor);
  }
  const bool needs_context = s.kind == RopeScalingKind::kDynamicNtk || s.kind == RopeScalingKind::kYarn ||
                             s.kind == RopeScalingKind::kLongRope || s.kind == RopeScalingKind::kLlama3;
  if (needs_context && s.original_context < 1) {
    return fail(ErrorKind::kInvalidArgument, "rope: scaling.original_context = {}, {} needs 1 or more",
                s.original_context, to_string(s.kind));
  }
  switch (s.kind) {
    case RopeScalingKind::kDynamicNtk:
      if (s.factor < 1.0) {
        return fail(ErrorKind::kInvalidArgument, "rope: scaling.factor = {}, dynamic_ntk needs 1 or more",
                    s.factor);
      }
      break;
    case RopeScalingKind::kYarn:
      if (!finite_positive(s.beta_slow) || !finite_positive(s.beta_fast) || s.beta_fast <= s.beta_slow) {
        return fail(ErrorKind::kInvalidArgument,
                    "rope: scaling.beta_fast = {} and beta_slow = {}, expected beta_fast > beta_slow > 0",
                    s.beta_fast, s.beta_slow);
      }
      if (s.ramp == YarnRamp::kDimension && rope.theta <= 1.0) {
        return fail(ErrorKind::kInvalidArgument, "rope: theta = {}, yarn by dimension needs more than 1",
                    rope.theta);
      }
      break;
    case RopeScalingKind::kLongRope:
      SIGHTLINE_CHECK(validate_divisors("short_divisors", s.short_divisors, rope.rotary_dim));
      SIGHTLINE_CHECK(validate_divisors("long_divisors", s.long_divisors, rope.rotary_dim));
      break;
    case RopeScalingKind::kLlama3:
      if (!finite_positive(s.low_freq_factor) || !finite_positive(s.high_freq_factor) ||
          s.high_freq_factor <= s.low_freq_factor) {
        return fail(ErrorKind::kInvalidArgument,
                    "rope: scaling.high_freq_factor = {} and low_freq_factor = {}, expected high > low > 0",
                    s.high_freq_factor, s.low_freq_factor);
      }
      break;
    case RopeScalingKind::kDivisors:
      SIGHTLINE_CHECK(validate_divisors("long_divisors", s.long_divisors, rope.rotary_dim));
      break;
    case RopeScalingKind::kNone:
    case RopeScalingKind::kLinear:
    case RopeScalingKind::kNtk:
      break;
  }
  return {};
}

}  // namespace

Result<void> validate(const RopeSpec& rope, int qk_head_dim) {
  if (!std::isfinite(rope.cos_sin_magnitude)) {
    return fail(ErrorKind::kInvalidArgument, "rope: cos_sin_magnitude = {}, expected finite",
                rope.cos_sin_magnitude);
  }
  if (rope.pairing == RopePairing::kNone) return {};
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > qk_head_dim) {
    return fail(ErrorKind::kInvalidArgument, "rope: rotary_dim = {}, expected even, 2 to qk_head_dim = {}",
                rope.rotary_dim, qk_head_dim);
  }
  if (!finite_positive(rope.theta)) {
    return fail(ErrorKind::kInvalidArgument, "rope: theta = {}, expected finite and positive", rope.theta);
  }
  return validate_scaling(rope);
}

std::string_view to_string(RopePairing pairing) { return word_of(pairing); }
std::string_view to_string(RopeScalingKind kind) { return word_of(kind); }
std::optional<RopePairing> parse_rope_pairing(std::string_view text) { return value_of<RopePairing>(text); }
std::optional<RopeScalingKind> parse_rope_scaling_kind(std::string_view text) {
  return value_of<RopeScalingKind>(text);
}

}  // namespace sightline
