#include "gguf_header.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "byte_cursor.h"
#include "gguf_values.h"
#include "quote_name.h"
#include "sightline/base/checked.h"

namespace sightline {

namespace {

constexpr std::uint64_t kMinKeyBytes = 8 + 4 + 1;         // key length, value type, one byte of value
constexpr std::uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, n_dims, type, offset

Result<std::uint32_t> read_version(ByteCursor& cursor) {
  SIGHTLINE_TRY(const auto magic, cursor.read<std::uint32_t>("magic"));
  if (magic != kGgufMagic) return cursor.error_at(0, "magic: expected 'GGUF', got 0x{:08x}", magic);
  SIGHTLINE_TRY(const auto version, cursor.read<std::uint32_t>("version"));
  if (version == 2 || version == 3) return version;
  const std::uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 0xffff) {
    return cursor.error_at(4,
                           "version: 0x{:08x} is version {} in big-endian byte order, which is not supported",
                           version, swapped);
  }
  return cursor.error_at(4, "version: expected 2 or 3, got {}", version);
}

Result<std::uint64_t> read_count(ByteCursor& cursor, std::string_view field, std::uint64_t min_bytes,
                                 std::uint64_t limit) {
  const std::uint64_t at = cursor.offset();
  SIGHTLINE_TRY(const auto n, cursor.read<std::uint64_t>(field));
  if (n > cursor.left() / min_bytes) {
    return cursor.error_at(at, "{}: {} of at least {} bytes each, {} bytes left in the file", field, n,
                           min_bytes, cursor.left());
  }
  if (n > limit) return cursor.error_at(at, "{}: {} is over the limit of {}", field, n, limit);
  return n;
}

Result<GgufEntry> read_entry(ByteCursor& cursor) {
  const std::uint64_t at = cursor.offset();
  GgufEntry entry;
  SIGHTLINE_TRY(entry.key, read_gguf_string(cursor, "key name", kGgufMaxKeyBytes));
  if (!is_gguf_key(entry.key)) {
    return cursor.error_at(at, "key name: expected printable ASCII, got {}", quote_name(entry.key));
  }
  const std::string field = fmt::format("key {}", quote_name(entry.key));
  SIGHTLINE_TRY(const auto type, cursor.read<std::uint32_t>(field));
  entry.file_offset = cursor.offset();
  SIGHTLINE_TRY(entry.value, read_gguf_value(cursor, type, field));
  return entry;
}

Result<std::uint64_t> read_alignment(const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "general.alignment";
  const auto* entry = metadata.find(kKey);
  if (entry == nullptr) return kGgufDefaultAlignment;
  const auto* value = std::get_if<std::uint32_t>(&entry->value);
  if (value == nullptr || !std::has_single_bit(*value) || *value > kGgufMaxAlignment) {
    return metadata.error(kKey,
                          fmt::format("expected a u32 power of two up to {}, got {} {}", kGgufMaxAlignment,
                                      gguf_type_name(entry->value.index()), describe(entry->value)));
  }
  return *value;
}

// `info.file_offset` is left relative to the data section.
Result<TensorInfo> read_tensor(ByteCursor& cursor) {
  TensorInfo info;
  const std::uint64_t begin = cursor.offset();
  SIGHTLINE_TRY(info.name, read_gguf_string(cursor, "tensor name", kGgufMaxNameBytes));
  if (info.name.empty()) return cursor.error_at(begin, "tensor name: empty");
  const auto name = [&] { return quote_name(info.name); };

  std::uint64_t at = cursor.offset();
  SIGHTLINE_TRY(const auto rank, cursor.read<std::uint32_t>("tensor n_dims"));
  if (rank > kGgufMaxRank) {
    return cursor.error_at(at, "tensor {}: n_dims = {}, at most {}", name(), rank, kGgufMaxRank);
  }
  at = cursor.offset();
  info.shape.resize(rank);
  for (std::size_t i = rank; i-- > 0;) {  // stored fastest first
    SIGHTLINE_TRY(info.shape[i], cursor.read<std::int64_t>("tensor dimensions"));
  }
  const auto num_elements = checked_num_elements(info.shape);
  if (!num_elements) {
    return cursor.error_at(at, "tensor {}: dimensions {} (slowest first) are negative or overflow", name(),
                           shape_to_string(info.shape));
  }

  const std::uint64_t type_at = cursor.offset();
  SIGHTLINE_TRY(const auto type_id, cursor.read<std::uint32_t>("tensor type"));
  const auto type = data_type_from_gguf(type_id);
  if (!type) {
    const bool was_removed =
        type_id == 4 || type_id == 5 || (type_id >= 31 && type_id <= 33) || (type_id >= 36 && type_id <= 38);
    return cursor.error_at(type_at, "tensor {}: type {} {}", name(), type_id,
                           was_removed ? "was removed from GGUF" : "is unknown");
  }
  info.type = *type;
  if (!row_bytes(info.type, static_cast<std::uint64_t>(info.row_length()))) {
    return cursor.error_at(at, "tensor {}: rows of {} values split a block of {} ({} values)", name(),
                           info.row_length(), to_string(info.type), data_type_info(info.type).block_elements);
  }
  const auto num_bytes = row_bytes(info.type, static_cast<std::uint64_t>(*num_elements));
  if (!num_bytes) return cursor.error_at(at, "tensor {}: size in bytes overflows", name());
  info.num_bytes = *num_bytes;
  SIGHTLINE_TRY(info.file_offset, cursor.read<std::uint64_t>("tensor offset"));
  return info;
}

// Offsets must be the running padded sum: nothing overlaps, no hole holds foreign bytes.
Result<void> place_tensors(const ByteCursor& cursor, std::uint64_t file_size, std::uint64_t alignment,
                           GgufHeader& header) {
  if (header.tensors.empty()) return {};
  const auto data_begin = checked_align(cursor.offset(), alignment);
  if (!data_begin) return cursor.error("data section: offset overflows");
  std::uint64_t running = 0;
  std::uint64_t end = *data_begin;
  for (auto& info : header.tensors) {
    if (info.file_offset != running) {
      return cursor.error("tensor {}: offset {} in the data section, expected {}", quote_name(info.name),
                          info.file_offset, running);
    }
    const auto begin = checked_add(*data_begin, running);
    const auto tensor_end = begin ? checked_add(*begin, info.num_bytes) : std::nullopt;
    const auto next = checked_add(running, info.num_bytes);
    const auto padded = next ? checked_align(*next, alignment) : std::nullopt;
    if (!tensor_end || !padded)
      return cursor.error("tensor {}: end of data overflows", quote_name(info.name));
    if (*tensor_end > file_size) {
      return cursor.error("tensor {}: {} bytes at byte {} reach past the end of the file at {}",
                          quote_name(info.name), info.num_bytes, *begin, file_size);
    }
    info.file_offset = *begin;
    running = *padded;
    end = *tensor_end;
  }
  if (file_size - end > alignment) {
    header.warnings.push_back(
        fmt::format("{} bytes follow the last tensor, at byte {}", file_size - end, end));
  }
  return {};
}

}  // namespace

bool is_gguf_key(std::string_view key) {
  return !key.empty() && key.size() <= kGgufMaxKeyBytes &&
         std::ranges::all_of(key, [](char c) { return c >= 0x20 && c < 0x7f; });
}

Result<GgufHeader> read_gguf_header(const ByteSource& bytes) {
  ByteCursor cursor(bytes);
  GgufHeader header;
  SIGHTLINE_TRY(header.version, read_version(cursor));
  SIGHTLINE_TRY(const auto num_tensors, read_count(cursor, "tensor count", kMinTensorBytes, kMaxTensors));
  SIGHTLINE_TRY(const auto num_keys, read_count(cursor, "key count", kMinKeyBytes, kGgufMaxKeys));

  const std::uint64_t metadata_begin = cursor.offset();
  std::vector<GgufEntry> entries;
  for (std::uint64_t i = 0; i < num_keys; ++i) {
    SIGHTLINE_TRY(GgufEntry entry, read_entry(cursor));
    entries.push_back(std::move(entry));
    if (cursor.offset() - metadata_begin > kGgufMaxMetadataBytes) {
      return cursor.error("metadata is over the limit of {} bytes", kGgufMaxMetadataBytes);
    }
  }
  SIGHTLINE_TRY(header.metadata, GgufMetadata::create(bytes.name(), std::move(entries)));
  SIGHTLINE_TRY(header.alignment, read_alignment(header.metadata));

  for (std::uint64_t i = 0; i < num_tensors; ++i) {
    SIGHTLINE_TRY(TensorInfo info, read_tensor(cursor));
    header.tensors.push_back(std::move(info));
  }
  SIGHTLINE_CHECK(place_tensors(cursor, bytes.size(), header.alignment, header));
  return header;
}

}  // namespace sightline
