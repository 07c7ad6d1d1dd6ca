// The weights of one linear layer, packed once at load into panels of 32 outputs in the order the kernels eat
// them, in f32, in bf16 or quantised as they were stored.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sightline/base/aligned_buffer.h"
#include "sightline/base/error.h"
#include "sightline/base/quant_block.h"

namespace sightline {

/// How weights lie in memory, which decides the arithmetic of the product.
enum class WeightStorage : std::uint8_t {
  kF32,       ///< f32 products and sums
  kBf16,      ///< bf16 products, f32 sums; f32 products where the CPU has no bf16 dot products
  kQuantised  ///< int8 dot products of 32 with activations quantised per row and block, f32 sums
};

/// One matrix W [out_dim, in_dim], or several stacked that were stored differently.
class PackedLinear {
 public:
  static constexpr int kPanelColumns = 32;

  /// Consecutive outputs stored one way: panels of 32, the last padded with 0.
  ///   f32 [panel][in_dim][32]; bf16 [panel][(in_dim + 1) / 2][32][2], an odd in_dim padded with 0;
  ///   quantised as kernels/quant_panel.h says.
  struct Piece {
    WeightStorage storage = WeightStorage::kF32;
    QuantKind kind = QuantKind::kQ8_0;  ///< of quantised ones
    std::int64_t out_begin = 0, out_end = 0;
    std::int64_t panel_bytes = 0;
    AlignedBuffer<std::byte> bytes;

    [[nodiscard]] std::int64_t num_panels() const {
      return (out_end - out_begin + kPanelColumns - 1) / kPanelColumns;
    }
    [[nodiscard]] const std::byte* panel(std::int64_t panel_idx) const {
      return bytes.data() + panel_idx * panel_bytes;
    }
  };

  PackedLinear() = default;
  /// Packs rows as they are produced: `read_rows(begin, end, out)` fills out with rows [begin, end) of
  /// W [out_dim, in_dim], row-major. Called with at most 32 rows at a time, ascending, so peak memory is the
  /// packed size plus one panel. An error of read_rows is passed on. pack_bf16 rounds to nearest, ties to
  /// even. Errors (kInvalidArgument): sizes below 1, or beyond memory.
  using ReadRows = std::function<Result<void>(std::int64_t begin, std::int64_t end, std::span<float> out)>;
  [[nodiscard]] static Result<PackedLinear> pack(std::int64_t out_dim, std::int64_t in_dim,
                                                 const ReadRows& read_rows);
  [[nodiscard]] static Result<PackedLinear> pack_bf16(std::int64_t out_dim, std::int64_t in_dim,
                                                      const ReadRows& read_rows);
  /// The same for blocks: `read_blocks` fills the blocks of rows [begin, end), row-major. Also refused
  /// (kInvalidArgument): an in_dim that is no multiple of the kind's block.
  using ReadBlocks =
      std::function<Result<void>(std::int64_t begin, std::int64_t end, std::span<QuantBlock> out)>;
  [[nodiscard]] static Result<PackedLinear> pack_quantised(QuantKind kind, std::int64_t out_dim,
                                                           std::int64_t in_dim,
                                                           const ReadBlocks& read_blocks);
  /// W with the outputs of `parts` one after the other. Errors (kInvalidArgument): in_dims that differ.
  [[nodiscard]] static Result<PackedLinear> stack(std::vector<PackedLinear> parts);

  /// Bytes that a matrix takes once packed; nothing is checked.
  [[nodiscard]] static std::int64_t packed_bytes(WeightStorage storage, QuantKind kind, std::int64_t out_dim,
                                                 std::int64_t in_dim);

  [[nodiscard]] std::int64_t out_dim() const { return pieces_.empty() ? 0 : pieces_.back().out_end; }
  [[nodiscard]] std::int64_t in_dim() const { return in_dim_; }
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::span<const Piece> pieces() const { return pieces_; }
  /// Row `out_idx` of W (an embedding looked up from the packed form), in_dim numbers; quantised ones as
  /// dequantize_row gives them.
  void unpack_row(std::int64_t out_idx, std::span<float> row) const;

 private:
  [[nodiscard]] static Result<PackedLinear> make(Piece piece, std::int64_t in_dim);

  std::int64_t in_dim_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace sightline
