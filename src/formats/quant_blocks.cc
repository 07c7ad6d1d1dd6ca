// The block formats of ggml, taken apart. Layouts: ggml-common.h; order of the bits: ggml-quants.c.
#include <cstring>

#include "sightline/formats/quantize.h"

namespace sightline {

namespace {

int byte_at(const std::byte* p, int i) { return std::to_integer<int>(p[i]); }

F16 half_at(const std::byte* p) {
  F16 x;
  std::memcpy(&x, p, sizeof(x));
  return x;
}

// 16 bytes: value j in the low nibble of byte j, value j + 16 in the high one.
void split_nibbles_32(const std::byte* from, std::uint8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = static_cast<std::uint8_t>(byte_at(from, j) & 15);
    q[j + 16] = static_cast<std::uint8_t>(byte_at(from, j) >> 4);
  }
}

// Block: d F16, 32 int8.
void split_q8_0(const std::byte* from, QuantBlock& block) {
  block.d = half_at(from);
  for (int j = 0; j < 32; ++j) block.q[j] = static_cast<std::uint8_t>(byte_at(from, 2 + j) ^ 0x80);
}

// Block: d F16, nibbles.
void split_q4_0(const std::byte* from, QuantBlock& block) {
  block.d = half_at(from);
  split_nibbles_32(from + 2, block.q);
}

// Block: d F16, m F16, nibbles.
void split_q4_1(const std::byte* from, QuantBlock& block) {
  block.d = half_at(from);
  block.m = half_at(from + 2);
  split_nibbles_32(from + 4, block.q);
}

// d F16, m F16, then eight scales and eight minima of 6 bits in 12 bytes: the first four of each in the low
// bits of bytes 0-3 and 4-7, of the others the low 4 bits in bytes 8-11 and the high 2 above the first four.
void split_scales(const std::byte* from, QuantBlock& block) {
  block.d = half_at(from);
  block.m = half_at(from + 2);
  const std::byte* const packed = from + 4;
  for (int j = 0; j < 4; ++j) {
    block.scale[j] = static_cast<std::int8_t>(byte_at(packed, j) & 63);
    block.min[j] = static_cast<std::uint8_t>(byte_at(packed, j + 4) & 63);
    block.scale[j + 4] =
        static_cast<std::int8_t>((byte_at(packed, j + 8) & 15) | (byte_at(packed, j) >> 6 << 4));
    block.min[j + 4] =
        static_cast<std::uint8_t>((byte_at(packed, j + 8) >> 4) | (byte_at(packed, j + 4) >> 6 << 4));
  }
}

// 32 bytes hold 64 values: the first 32 in the low nibbles, the next 32 in the high ones.
void split_nibbles_256(const std::byte* from, std::uint8_t* q) {
  for (int i = 0; i < 256; ++i) {
    const int byte = byte_at(from, i / 64 * 32 + i % 32);
    q[i] = static_cast<std::uint8_t>(i / 32 % 2 == 0 ? byte & 15 : byte >> 4);
  }
}

// Block: scales, 128 bytes of nibbles.
void split_q4_k(const std::byte* from, QuantBlock& block) {
  split_scales(from, block);
  split_nibbles_256(from + 16, block.q);
}

// Block: scales, 32 bytes of fifth bits (bit s of byte l is value 32 s + l), 128 bytes of nibbles.
void split_q5_k(const std::byte* from, QuantBlock& block) {
  split_scales(from, block);
  split_nibbles_256(from + 48, block.q);
  for (int i = 0; i < 256; ++i) {
    if ((byte_at(from, 16 + i % 32) >> (i / 32) & 1) != 0) block.q[i] |= 16;
  }
}

// Block: 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 int8 scales, d F16. Each half of 128
// values: 64 bytes, whose low nibbles are values 0-63 and high ones 64-127; pair s of byte l of 32 belongs to
// value 32 s + l.
void split_q6_k(const std::byte* from, QuantBlock& block) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int in_half = i % 128;
    const int byte = byte_at(from, half * 64 + in_half % 64);
    const int low = in_half < 64 ? byte & 15 : byte >> 4;
    const int high = byte_at(from, 128 + half * 32 + in_half % 32) >> (in_half / 32 * 2) & 3;
    block.q[i] = static_cast<std::uint8_t>(low | high << 4);
  }
  std::memcpy(block.scale, from + 192, 16);
  block.d = half_at(from + 208);
}

}  // namespace

std::optional<QuantKind> quant_kind(DataType type) {
  switch (type) {
    case DataType::kQ8_0:
      return QuantKind::kQ8_0;
    case DataType::kQ4_0:
      return QuantKind::kQ4_0;
    case DataType::kQ4_1:
      return QuantKind::kQ4_1;
    case DataType::kQ4_K:
      return QuantKind::kQ4_K;
    case DataType::kQ5_K:
      return QuantKind::kQ5_K;
    case DataType::kQ6_K:
      return QuantKind::kQ6_K;
    default:
      return std::nullopt;
  }
}

void split_block(QuantKind kind, const std::byte* from, QuantBlock& block) {
  switch (kind) {
    case QuantKind::kQ8_0:
      return split_q8_0(from, block);
    case QuantKind::kQ4_0:
      return split_q4_0(from, block);
    case QuantKind::kQ4_1:
      return split_q4_1(from, block);
    case QuantKind::kQ4_K:
      return split_q4_k(from, block);
    case QuantKind::kQ5_K:
      return split_q5_k(from, block);
    case QuantKind::kQ6_K:
      return split_q6_k(from, block);
  }
}

}  // namespace sightline
