// The words of every enum of the spec, as they stand in JSON and on the command line: one table an enum.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "sightline/spec/loss.h"
#include "sightline/spec/model.h"
#include "sightline/spec/rope.h"

namespace sightline {

template <typename E>
struct Word {
  E value;
  std::string_view word;
};

template <typename E>
struct Words;

template <>
struct Words<RopePairing> {
  static constexpr Word<RopePairing> kTable[] = {
      {RopePairing::kNone, "none"},
      {RopePairing::kInterleaved, "interleaved"},
      {RopePairing::kHalfSplit, "half_split"},
  };
};

template <>
struct Words<RopeScalingKind> {
  static constexpr Word<RopeScalingKind> kTable[] = {
      {RopeScalingKind::kNone, "none"},     {RopeScalingKind::kLinear, "linear"},
      {RopeScalingKind::kNtk, "ntk"},       {RopeScalingKind::kDynamicNtk, "dynamic_ntk"},
      {RopeScalingKind::kYarn, "yarn"},     {RopeScalingKind::kLongRope, "longrope"},
      {RopeScalingKind::kLlama3, "llama3"}, {RopeScalingKind::kDivisors, "divisors"},
  };
};

template <>
struct Words<YarnRamp> {
  static constexpr Word<YarnRamp> kTable[] = {
      {YarnRamp::kDimension, "dimension"},
      {YarnRamp::kWavelength, "wavelength"},
  };
};

template <>
struct Words<CacheStage> {
  static constexpr Word<CacheStage> kTable[] = {
      {CacheStage::kAfterRotation, "after_rotation"},
      {CacheStage::kBeforeRotation, "before_rotation"},
  };
};

template <>
struct Words<PositionPolicy> {
  static constexpr Word<PositionPolicy> kTable[] = {
      {PositionPolicy::kText, "text"},
      {PositionPolicy::kInCache, "in_cache"},
  };
};

template <>
struct Words<RopeLengthPolicy> {
  static constexpr Word<RopeLengthPolicy> kTable[] = {
      {RopeLengthPolicy::kFixedAtStart, "fixed_at_start"},
      {RopeLengthPolicy::kCurrentLength, "current_length"},
  };
};

template <>
struct Words<PromptScope> {
  static constexpr Word<PromptScope> kTable[] = {
      {PromptScope::kIn, "in"},
      {PromptScope::kOut, "out"},
  };
};

template <>
struct Words<NextDocumentScope> {
  static constexpr Word<NextDocumentScope> kTable[] = {
      {NextDocumentScope::kIn, "in"},
      {NextDocumentScope::kOut, "out"},
  };
};

template <>
struct Words<LossNormalisation> {
  static constexpr Word<LossNormalisation> kTable[] = {
      {LossNormalisation::kAllTargets, "all_targets"},
  };
};

template <>
struct Words<NormKind> {
  static constexpr Word<NormKind> kTable[] = {
      {NormKind::kRms, "rms"},
      {NormKind::kLayer, "layer"},
  };
};

template <>
struct Words<NormPlacement> {
  static constexpr Word<NormPlacement> kTable[] = {
      {NormPlacement::kBefore, "before"},
      {NormPlacement::kAfter, "after"},
      {NormPlacement::kBoth, "both"},
  };
};

template <>
struct Words<ResidualKind> {
  static constexpr Word<ResidualKind> kTable[] = {
      {ResidualKind::kSequential, "sequential"},
      {ResidualKind::kParallel, "parallel"},
  };
};

template <>
struct Words<Activation> {
  static constexpr Word<Activation> kTable[] = {
      {Activation::kSilu, "silu"},
      {Activation::kGeluTanh, "gelu_tanh"},
      {Activation::kGeluErf, "gelu_erf"},
      {Activation::kRelu, "relu"},
  };
};

template <>
struct Words<QkNorm> {
  static constexpr Word<QkNorm> kTable[] = {
      {QkNorm::kNone, "none"},
      {QkNorm::kPerHead, "per_head"},
      {QkNorm::kFullWidth, "full_width"},
  };
};

/// The word of a value; "?" for a number that is no value of the enum.
template <typename E>
[[nodiscard]] constexpr std::string_view word_of(E value) {
  for (const auto& [entry, word] : Words<E>::kTable) {
    if (entry == value) return word;
  }
  return "?";
}

template <typename E>
[[nodiscard]] constexpr std::optional<E> value_of(std::string_view text) {
  for (const auto& [entry, word] : Words<E>::kTable) {
    if (word == text) return entry;
  }
  return std::nullopt;
}

/// "none, interleaved, half_split", for messages.
template <typename E>
[[nodiscard]] std::string all_words() {
  std::string out;
  for (const auto& [entry, word] : Words<E>::kTable) {
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}

}  // namespace sightline
