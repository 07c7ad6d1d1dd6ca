#include "sightline/ops/packed_linear.h"

#include <algorithm>
#include <cstring>

#include "sightline/base/checked.h"
#include "sightline/base/huge_pages.h"
#include "sightline/kernels/quant_panel.h"

namespace sightline {

namespace {

constexpr std::int64_t kColumns = PackedLinear::kPanelColumns;
static_assert(kColumns == kernels::kPanelColumns);

std::int64_t bytes_of_panel(WeightStorage storage, QuantKind kind, std::int64_t in_dim) {
  switch (storage) {
    case WeightStorage::kF32:
      return in_dim * kColumns * 4;
    case WeightStorage::kBf16:
      return (in_dim + 1) / 2 * kColumns * 4;
    case WeightStorage::kQuantised:
      return kernels::quant_panel_bytes(kind, in_dim);
  }
  return 0;
}

void put_f32(std::span<const float> rows, std::int64_t num_rows, std::int64_t in_dim, std::byte* panel) {
  auto* to = reinterpret_cast<float*>(panel);
  for (std::int64_t k = 0; k < in_dim; ++k) {
    for (std::int64_t n = 0; n < num_rows; ++n) {
      to[k * kColumns + n] = rows[static_cast<std::size_t>(n * in_dim + k)];
    }
  }
}

void put_bf16(std::span<const float> rows, std::int64_t num_rows, std::int64_t in_dim, std::byte* panel) {
  auto* to = reinterpret_cast<std::uint16_t*>(panel);
  for (std::int64_t n = 0; n < num_rows; ++n) {
    for (std::int64_t k = 0; k < in_dim; ++k) {
      to[(k / 2 * kColumns + n) * 2 + k % 2] = to_bf16(rows[static_cast<std::size_t>(n * in_dim + k)]).bits;
    }
  }
}

}  // namespace

// A piece of the right size, all 0: what pads the last panel and an odd in_dim.
Result<PackedLinear> PackedLinear::make(Piece piece, std::int64_t in_dim) {
  const std::int64_t out_dim = piece.out_end;
  if (out_dim < 1 || in_dim < 1) {
    return fail(ErrorKind::kInvalidArgument, "PackedLinear::pack: out_dim = {}, in_dim = {}, expected >= 1",
                out_dim, in_dim);
  }
  const auto num_panels = static_cast<std::uint64_t>((out_dim - 1) / kColumns + 1);
  // No storage takes more than 4 bytes a weight.
  const auto most_of_panel = checked_mul(static_cast<std::uint64_t>(in_dim) + 1, kColumns * 4);
  const auto most = most_of_panel ? checked_mul(*most_of_panel, num_panels) : std::nullopt;
  if (!most || *most > PTRDIFF_MAX) {
    return fail(ErrorKind::kInvalidArgument,
                "PackedLinear::pack: out_dim = {} times in_dim = {} is too large", out_dim, in_dim);
  }
  piece.panel_bytes = bytes_of_panel(piece.storage, piece.kind, in_dim);
  piece.bytes = AlignedBuffer<std::byte>(num_panels * static_cast<std::size_t>(piece.panel_bytes));
  prefer_huge_pages(piece.bytes.span());
  std::memset(piece.bytes.data(), 0, piece.bytes.size());
  PackedLinear packed;
  packed.in_dim_ = in_dim;
  packed.pieces_.push_back(std::move(piece));
  return packed;
}

namespace {

Result<void> pack_rows(std::int64_t in_dim, PackedLinear::Piece& piece,
                       const PackedLinear::ReadRows& read_rows) {
  AlignedBuffer<float> rows(static_cast<std::size_t>(in_dim * kColumns));
  for (std::int64_t begin = 0; begin < piece.out_end; begin += kColumns) {
    const std::int64_t num_rows = std::min(kColumns, piece.out_end - begin);
    const std::span<float> used = rows.span().first(static_cast<std::size_t>(num_rows * in_dim));
    SIGHTLINE_CHECK(read_rows(begin, begin + num_rows, used));
    std::byte* const panel = piece.bytes.data() + begin / kColumns * piece.panel_bytes;
    if (piece.storage == WeightStorage::kF32) {
      put_f32(used, num_rows, in_dim, panel);
    } else {
      put_bf16(used, num_rows, in_dim, panel);
    }
  }
  return {};
}

}  // namespace

Result<PackedLinear> PackedLinear::pack(std::int64_t out_dim, std::int64_t in_dim,
                                        const ReadRows& read_rows) {
  SIGHTLINE_TRY(PackedLinear packed,
                make({.storage = WeightStorage::kF32, .out_end = out_dim, .bytes = {}}, in_dim));
  SIGHTLINE_CHECK(pack_rows(in_dim, packed.pieces_.front(), read_rows));
  return packed;
}

Result<PackedLinear> PackedLinear::pack_bf16(std::int64_t out_dim, std::int64_t in_dim,
                                             const ReadRows& read_rows) {
  SIGHTLINE_TRY(PackedLinear packed,
                make({.storage = WeightStorage::kBf16, .out_end = out_dim, .bytes = {}}, in_dim));
  SIGHTLINE_CHECK(pack_rows(in_dim, packed.pieces_.front(), read_rows));
  return packed;
}

Result<PackedLinear> PackedLinear::pack_quantised(QuantKind kind, std::int64_t out_dim, std::int64_t in_dim,
                                                  const ReadBlocks& read_blocks) {
  const int block_values = quant_traits(kind).block_values;
  if (in_dim % block_values != 0) {
    return fail(ErrorKind::kInvalidArgument,
                "PackedLinear::pack_quantised: in_dim = {}, expected a multiple of {}", in_dim, block_values);
  }
  SIGHTLINE_TRY(
      PackedLinear packed,
      make({.storage = WeightStorage::kQuantised, .kind = kind, .out_end = out_dim, .bytes = {}}, in_dim));
  Piece& piece = packed.pieces_.front();
  const std::int64_t num_blocks = in_dim / block_values;
  std::vector<QuantBlock> blocks(static_cast<std::size_t>(num_blocks * kColumns));
  for (std::int64_t begin = 0; begin < out_dim; begin += kColumns) {
    const std::int64_t num_rows = std::min(kColumns, out_dim - begin);
    SIGHTLINE_CHECK(read_blocks(begin, begin + num_rows,
                                std::span(blocks).first(static_cast<std::size_t>(num_rows * num_blocks))));
    auto* panel = reinterpret_cast<std::uint8_t*>(piece.bytes.data() + begin / kColumns * piece.panel_bytes);
    for (std::int64_t n = 0; n < num_rows; ++n) {
      for (std::int64_t b = 0; b < num_blocks; ++b) {
        kernels::put_quant_block(kind, blocks[static_cast<std::size_t>(n * num_blocks + b)], b,
                                 static_cast<int>(n), panel);
      }
    }
  }
  return packed;
}

Result<PackedLinear> PackedLinear::stack(std::vector<PackedLinear> parts) {
  PackedLinear all;
  for (PackedLinear& part : parts) {
    if (all.pieces_.empty()) all.in_dim_ = part.in_dim_;
    if (part.in_dim_ != all.in_dim_) {
      return fail(ErrorKind::kInvalidArgument, "PackedLinear::stack: in_dim = {} beside in_dim = {}",
                  part.in_dim_, all.in_dim_);
    }
    const std::int64_t begin = all.out_dim();
    for (Piece& piece : part.pieces_) {
      piece.out_begin += begin;
      piece.out_end += begin;
      all.pieces_.push_back(std::move(piece));
    }
  }
  return all;
}

std::int64_t PackedLinear::packed_bytes(WeightStorage storage, QuantKind kind, std::int64_t out_dim,
                                        std::int64_t in_dim) {
  return (out_dim + kColumns - 1) / kColumns * bytes_of_panel(storage, kind, in_dim);
}

std::size_t PackedLinear::bytes() const {
  std::size_t sum = 0;
  for (const Piece& piece : pieces_) sum += piece.bytes.size();
  return sum;
}

void PackedLinear::unpack_row(std::int64_t out_idx, std::span<float> row) const {
  const auto piece =
      std::find_if(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return out_idx < p.out_end; });
  const std::int64_t in_piece = out_idx - piece->out_begin;
  const std::byte* const panel = piece->panel(in_piece / kColumns);
  const std::int64_t column = in_piece % kColumns;
  switch (piece->storage) {
    case WeightStorage::kF32: {
      const float* const from = reinterpret_cast<const float*>(panel) + column;
      for (std::int64_t k = 0; k < in_dim_; ++k) row[static_cast<std::size_t>(k)] = from[k * kColumns];
      return;
    }
    case WeightStorage::kBf16: {
      const auto* const from = reinterpret_cast<const std::uint16_t*>(panel);
      for (std::int64_t k = 0; k < in_dim_; ++k) {
        row[static_cast<std::size_t>(k)] = to_f32(Bf16{from[(k / 2 * kColumns + column) * 2 + k % 2]});
      }
      return;
    }
    case WeightStorage::kQuantised: {
      const std::int64_t block_values = quant_traits(piece->kind).block_values;
      QuantBlock block;
      for (std::int64_t b = 0; b < in_dim_ / block_values; ++b) {
        kernels::get_quant_block(piece->kind, reinterpret_cast<const std::uint8_t*>(panel), b,
                                 static_cast<int>(column), block);
        quant_values(piece->kind, block, row.data() + b * block_values);
      }
      return;
    }
  }
}

}  // namespace sightline
