// Between f32 and the storage types of files, one row at a time. Bit-exact restatements of the block
// formats of ggml; no arithmetic on quantised data happens here.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "sightline/base/error.h"
#include "sightline/base/quant_block.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

/// Dequantises `dst.size()` values of storage type `type` from `src` into f32.
///
/// F32, F16, BF16, Bool, I8, U8, I16, U16 are exact; F64, I32, U32, I64, U64 round to nearest.
/// Blocks of 32 (d, m stored as F16): Q8_0 y = d*q, q int8; Q4_0 y = d*(q - 8); Q4_1 y = d*q + m, product
/// rounded before the addition; in Q4 blocks byte j holds values j (low nibble) and j + 16 (high).
/// Blocks of 256: Q4_K, Q5_K y = (d*scale)*q - m*min, scale and min of 6 bits for each 32 values; Q6_K
/// y = (d*scale)*(q - 32), scale int8 for each 16 values. Values are not checked: NaN and infinity pass
/// through.
///
/// Errors: kInvalidContent for a type that is only named; kInvalidArgument when `src` is not exactly
/// row_bytes(type, dst.size()). Cost: one pass, no allocation. Deterministic.
/// Source: ggml-quants.c, dequantize_row_q8_0, _q4_0, _q4_1, _q4_K, _q5_K, _q6_K.
[[nodiscard]] Result<void> dequantize_row(DataType type, std::span<const std::byte> src,
                                          std::span<float> dst);

/// The kind that linear layers run as it is stored; none for types that are no blocks or are only named.
[[nodiscard]] std::optional<QuantKind> quant_kind(DataType type);

/// Takes one block of a row apart; `from` holds the bytes of one block of that type.
void split_block(QuantKind kind, const std::byte* from, QuantBlock& block);

/// Stores `src` as `type`: F32, F16, BF16 (nearest, ties to even) or Q8_0.
/// Q8_0 per block of 32: d = max|x| / 127, q = round half away from zero of x * (1/d), d stored as F16.
///
/// Errors: kInvalidArgument for other types, and when `dst` is not exactly row_bytes(type, src.size());
/// kInvalidArgument for NaN or infinity in a Q8_0 block (it has no such values).
/// Source: ggml-quants.c, quantize_row_q8_0_ref.
[[nodiscard]] Result<void> quantize_row(DataType type, std::span<const float> src, std::span<std::byte> dst);

}  // namespace sightline
