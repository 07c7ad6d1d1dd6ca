// The types in which another program computes with the same weights: what its matrix products read, and what
// its cache holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "sightline/base/error.h"
#include "sightline/model/model_info.h"

namespace sightline::subjects {

/// How rows of numbers are rounded before they are used.
enum class RowType : std::uint8_t {
  kF32,   ///< not at all
  kBf16,  ///< 8 bits of significand
  kF16,   ///< 11 bits
  kQ8,    ///< blocks of 32 as whole numbers of -127 to 127 times max |x| / 127 (ggml's Q8_0 and Q8_1)
  kQ8K,   ///< the same in blocks of 256 (ggml's Q8_K)
};
[[nodiscard]] std::string_view to_string(RowType type);

struct ForeignTypes {
  RowType inputs = RowType::kF32;  ///< the rows that meet a weight matrix
  RowType cache = RowType::kF32;   ///< q, k, v, and sums of v as they grow

  bool operator==(const ForeignTypes&) const = default;
};

/// Reads "INPUTS/CACHE" or "INPUTS" (then the cache is f32), each one of f32, bf16, f16, q8, q8_k; or
/// "llama.cpp": the types that program takes on a CPU for weights of the types in `stored` (f32, f16 and bf16
/// for themselves, q8_k for K and IQ types, q8 for other quantised ones; the coarsest counts), with its cache
/// of f16 (ggml-cpu.c, type_traits_cpu; llama-context.cpp, default of type_k).
/// Errors (kInvalidArgument): another text.
[[nodiscard]] Result<ForeignTypes> parse_foreign_types(std::string_view text,
                                                       std::span<const ModelInfo::TypeCount> stored);
/// "q8/f16".
[[nodiscard]] std::string to_string(const ForeignTypes& types);

}  // namespace sightline::subjects
