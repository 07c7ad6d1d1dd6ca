#include "kv_cache/page_slots.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "sightline/base/half.h"

namespace sightline::kv_cache {

namespace {
// Signalling (quiet bit clear): arithmetic on it raises "invalid", and its bits are told from a real NaN.
constexpr std::uint32_t kPoisonF32 = 0x7fa5a5a5U;
constexpr std::uint16_t kPoisonBf16 = 0x7fa5U;

// Stored numbers as raw bits, so that a signalling NaN is moved and never computed with.
using F32Bits = std::uint32_t;
using Bf16Bits = std::uint16_t;

F32Bits round_to(float x, F32Bits) { return std::bit_cast<std::uint32_t>(x); }
Bf16Bits round_to(float x, Bf16Bits) { return to_bf16(x).bits; }
float widen(F32Bits bits) { return std::bit_cast<float>(bits); }
float widen(Bf16Bits bits) { return to_f32(Bf16{bits}); }
bool is_finite(F32Bits bits) { return (bits & 0x7f800000U) != 0x7f800000U; }
bool is_finite(Bf16Bits bits) { return (bits & 0x7f80U) != 0x7f80U; }

// Calls body with a pointer to the storage type.
template <typename Body>
auto with_type(StorageType type, std::byte* data, const Body& body) {
  if (type == StorageType::kF32) return body(reinterpret_cast<F32Bits*>(data), F32Bits{kPoisonF32});
  return body(reinterpret_cast<Bf16Bits*>(data), Bf16Bits{kPoisonBf16});
}

void write_value(Page& page, const PageShape& shape, int head, int slot, std::span<const float> value) {
  const PageLayout& layout = shape.layout;
  bool finite = true;
  with_type(shape.value_type, page.values(shape, head), [&](auto* to, auto type) {
    for (int dim = 0; dim < layout.v_head_dim; ++dim) {
      const auto bits = round_to(value[static_cast<std::size_t>(dim)], type);
      finite = finite && is_finite(bits);
      to[layout.value_offset(shape.value_type, slot, dim)] = bits;
    }
  });
  page.bits[static_cast<std::size_t>(head)].bad_values.set(static_cast<std::size_t>(slot), !finite);
}
}  // namespace

void write_key(Page& page, const PageShape& shape, int head, int slot, std::span<const float> key) {
  const PageLayout& layout = shape.layout;
  bool finite = true;
  with_type(shape.key_type, page.keys(shape, head), [&](auto* to, auto type) {
    for (int dim = 0; dim < layout.qk_head_dim; ++dim) {
      const auto bits = round_to(key[static_cast<std::size_t>(dim)], type);
      finite = finite && is_finite(bits);
      to[layout.key_offset(shape.key_type, slot, dim)] = bits;
    }
  });
  page.bits[static_cast<std::size_t>(head)].bad_keys.set(static_cast<std::size_t>(slot), !finite);
}

void write_slot(Page& page, const PageShape& shape, int head, int slot, std::span<const float> key,
                std::span<const float> value) {
  write_key(page, shape, head, slot, key);
  write_value(page, shape, head, slot, value);
}

void read_key(Page& page, const PageShape& shape, int head, int slot, std::span<float> key) {
  with_type(shape.key_type, page.keys(shape, head), [&](auto* from, auto) {
    for (int dim = 0; dim < shape.layout.qk_head_dim; ++dim) {
      key[static_cast<std::size_t>(dim)] = widen(from[shape.layout.key_offset(shape.key_type, slot, dim)]);
    }
  });
}

void clear_slots(Page& page, const PageShape& shape, int begin, int end, bool poison) {
  const PageLayout& layout = shape.layout;
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    with_type(shape.key_type, page.keys(shape, head), [&](auto* to, auto poison_bits) {
      for (int dim = 0; dim < layout.qk_head_dim; ++dim) {
        for (int slot = begin; slot < end; ++slot) {
          to[layout.key_offset(shape.key_type, slot, dim)] = poison ? poison_bits : 0;
        }
      }
    });
    with_type(shape.value_type, page.values(shape, head), [&](auto* to, auto poison_bits) {
      for (int slot = begin; slot < end; ++slot) {
        for (int dim = 0; dim < layout.v_head_dim; ++dim) {
          to[layout.value_offset(shape.value_type, slot, dim)] = poison ? poison_bits : 0;
        }
      }
    });
    HeadBits& bits = page.bits[static_cast<std::size_t>(head)];
    for (int slot = begin; slot < end; ++slot) {
      bits.bad_keys.set(static_cast<std::size_t>(slot), poison);
      bits.bad_values.set(static_cast<std::size_t>(slot), poison);
    }
  }
}

void clear_page(Page& page, const PageShape& shape, bool poison) {
  std::memset(page.data.data(), 0, page.data.size());
  for (HeadBits& bits : page.bits) bits = {};
  if (poison) clear_slots(page, shape, 0, shape.layout.page_size, true);
}

void copy_page(const Page& from, Page& to) {
  std::memcpy(to.data.data(), from.data.data(), from.data.size());
  to.bits = from.bits;
}

}  // namespace sightline::kv_cache
