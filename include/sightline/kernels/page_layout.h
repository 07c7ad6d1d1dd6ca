// How keys and values of one key head lie in a page: in the order the micro-kernels eat. The cache
// writes it, the packing of contiguous arrays writes it, the kernels read it; nobody else knows it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sightline {

/// What a page stores. bf16 keeps two neighbours together (dims of a key, tokens of a value), as
/// `vdpbf16ps` takes them.
enum class StorageType : std::uint8_t { kF32, kBf16 };

[[nodiscard]] constexpr std::size_t storage_bytes(StorageType type) {
  return type == StorageType::kF32 ? 4 : 2;
}

/// Lanes that every row of a page is padded to, so that no vector load needs a tail.
inline constexpr int kPageLanes = 16;

/// `page_size` tokens (a multiple of kPageLanes) of one key head.
///   keys    f32: [page_size/16][qk_head_dim][16]     bf16: [page_size/16][ceil(qk_head_dim/2)][16][2]
///   values  f32: [page_size/16][padded_v_dim/16][16 tokens][16 dims]
///          bf16: [page_size/16][padded_v_dim/16][8][16][2 tokens]
/// 16 keys lie together, dim after dim, so that a kernel reads them as one stream: with the page size between
/// dims, a power of two, a panel of keys would fall into a quarter of the first cache's sets.
/// Padding lanes of values and the odd half of a bf16 key pair hold 0.
struct PageLayout {
  int page_size = 64;
  int qk_head_dim = 0;
  int v_head_dim = 0;

  [[nodiscard]] constexpr int padded_v_dim() const {
    return (v_head_dim + kPageLanes - 1) / kPageLanes * kPageLanes;
  }
  /// Offsets in elements of the storage type.
  [[nodiscard]] constexpr std::size_t key_offset(StorageType type, int token, int dim) const {
    const auto chunk = static_cast<std::size_t>(token / kPageLanes);
    const auto lane = static_cast<std::size_t>(token % kPageLanes);
    if (type == StorageType::kF32) return (chunk * qk_head_dim + dim) * kPageLanes + lane;
    const int pairs = (qk_head_dim + 1) / 2;
    return ((chunk * pairs + dim / 2) * kPageLanes + lane) * 2 + dim % 2;
  }
  [[nodiscard]] constexpr std::size_t value_offset(StorageType type, int token, int dim) const {
    const auto chunk = static_cast<std::size_t>(token / kPageLanes);
    const std::size_t block =
        (chunk * (padded_v_dim() / kPageLanes) + dim / kPageLanes) * kPageLanes * kPageLanes;
    const int row = token % kPageLanes;
    const int lane = dim % kPageLanes;
    if (type == StorageType::kF32) return block + static_cast<std::size_t>(row) * kPageLanes + lane;
    return block + (static_cast<std::size_t>(row / 2) * kPageLanes + lane) * 2 + row % 2;
  }
  /// Elements of a page's keys and of its values.
  [[nodiscard]] constexpr std::size_t key_size(StorageType type) const {
    const int dims = type == StorageType::kF32 ? qk_head_dim : (qk_head_dim + 1) / 2 * 2;
    return static_cast<std::size_t>(dims) * page_size;
  }
  [[nodiscard]] constexpr std::size_t value_size() const {
    return static_cast<std::size_t>(page_size) * padded_v_dim();
  }
};

}  // namespace sightline
