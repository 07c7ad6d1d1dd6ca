// Between f32 and the storage types of files, one row at a time. Bit-exact restatements of the block
// formats of ggml; no arithmetic on quantised data happens here.
#pragma once

#include <cstddef>
#include <span>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

/// Dequantises `dst.size()` values of storage type `type` from `src` into f32.
///
/// F32, F16, BF16, Bool, I8, U8, I16, U16 are exact; F64, I32, U32, I64, U64 round to nearest.
/// Blocks of 32 (d, m stored as F16): Q8_0 y = d*q, q int8; Q4_0 y = d*(q - 8); Q4_1 y = d*q + m, product
/// rounded before the addition; in Q4 blocks byte j holds values j (low nibble) and j + 16 (high).
/// Values are not checked: NaN and infinity pass through.
///
/// Errors: kInvalidContent for a type that is only named; kInvalidArgument when `src` is not exactly
/// row_bytes(type, dst.size()). Cost: one pass, no allocation. Deterministic.
/// Source: ggml-quants.c, dequantize_row_q8_0, _q4_0, _q4_1.
[[nodiscard]] Result<void> dequantize_row(DataType type, std::span<const std::byte> src,
                                          std::span<float> dst);

/// Stores `src` as `type`: F32, F16, BF16 (nearest, ties to even) or Q8_0.
/// Q8_0 per block of 32: d = max|x| / 127, q = round half away from zero of x * (1/d), d stored as F16.
///
/// Errors: kInvalidArgument for other types, and when `dst` is not exactly row_bytes(type, src.size());
/// kInvalidArgument for NaN or infinity in a Q8_0 block (it has no such values).
/// Source: ggml-quants.c, quantize_row_q8_0_ref.
[[nodiscard]] Result<void> quantize_row(DataType type, std::span<const float> src, std::span<std::byte> dst);

}  // namespace sightline
