#include "gguf_values.h"

#include <vector>

#include "gguf_header.h"

namespace sightline {

namespace {

constexpr std::uint32_t kArrayType = 9;

Result<std::uint64_t> read_length(ByteCursor& cursor, std::string_view field, std::uint64_t max_bytes) {
  const std::uint64_t at = cursor.offset();
  SIGHTLINE_TRY(const auto length, cursor.read<std::uint64_t>(field));
  if (length > cursor.left()) {
    return cursor.error_at(at, "{}: length {}, {} bytes left in the file", field, length, cursor.left());
  }
  if (length > max_bytes) {
    return cursor.error_at(at, "{}: length {} is over the limit of {}", field, length, max_bytes);
  }
  return length;
}

Result<bool> read_bool(ByteCursor& cursor, std::string_view field) {
  const std::uint64_t at = cursor.offset();
  SIGHTLINE_TRY(const auto byte, cursor.read<std::uint8_t>(field));
  if (byte > 1) return cursor.error_at(at, "{}: bool must be 0 or 1, got {}", field, byte);
  return byte == 1;
}

// Element counts are divided, never multiplied: n <= left / size cannot overflow.
Result<void> check_count(const ByteCursor& cursor, std::uint64_t n, std::uint64_t min_bytes,
                         std::string_view field) {
  if (n > cursor.left() / min_bytes) {
    return cursor.error("{}: {} elements of at least {} bytes, {} bytes left in the file", field, n,
                        min_bytes, cursor.left());
  }
  if (n > kGgufMaxMetadataBytes / min_bytes) {
    return cursor.error("{}: {} elements of at least {} bytes, over the limit of {} bytes", field, n,
                        min_bytes, kGgufMaxMetadataBytes);
  }
  return {};
}

template <typename T>
Result<GgufArray> read_numbers(ByteCursor& cursor, std::uint64_t n, std::string_view field) {
  SIGHTLINE_CHECK(check_count(cursor, n, sizeof(T), field));
  std::vector<T> values(n);
  SIGHTLINE_CHECK(cursor.read_bytes(std::as_writable_bytes(std::span(values)), field));
  return GgufArray(std::move(values));
}

Result<GgufArray> read_bools(ByteCursor& cursor, std::uint64_t n, std::string_view field) {
  const std::uint64_t at = cursor.offset();
  SIGHTLINE_CHECK(check_count(cursor, n, 1, field));
  GgufBools bools{std::vector<std::uint8_t>(n)};
  SIGHTLINE_CHECK(cursor.read_bytes(std::as_writable_bytes(std::span(bools.values)), field));
  for (std::size_t i = 0; i < bools.values.size(); ++i) {
    if (bools.values[i] > 1) {
      return cursor.error_at(at + i, "{}[{}]: bool must be 0 or 1, got {}", field, i, bools.values[i]);
    }
  }
  return GgufArray(std::move(bools));
}

// Two passes: the first walks the lengths, so that memory is taken once and for what is really there.
Result<GgufArray> read_strings(ByteCursor& cursor, std::uint64_t n, std::string_view field) {
  SIGHTLINE_CHECK(check_count(cursor, n, sizeof(std::uint64_t), field));
  const std::uint64_t begin = cursor.offset();
  for (std::uint64_t i = 0; i < n; ++i) {
    SIGHTLINE_TRY(const auto length, read_length(cursor, field, kGgufMaxStringBytes));
    SIGHTLINE_CHECK(cursor.skip(length, field));
  }
  const std::uint64_t num_bytes = cursor.offset() - begin - n * sizeof(std::uint64_t);
  if (num_bytes > kGgufMaxMetadataBytes) {
    return cursor.error_at(begin, "{}: {} bytes of strings, over the limit of {}", field, num_bytes,
                           kGgufMaxMetadataBytes);
  }
  cursor.seek(begin);
  GgufStrings strings;
  strings.reserve(n, num_bytes);
  std::string text;
  for (std::uint64_t i = 0; i < n; ++i) {
    SIGHTLINE_TRY(const auto length, read_length(cursor, field, kGgufMaxStringBytes));
    text.resize(length);
    SIGHTLINE_CHECK(cursor.read_bytes(std::as_writable_bytes(std::span(text)), field));
    strings.push_back(text);
  }
  return GgufArray(std::move(strings));
}

Result<GgufArray> read_array(ByteCursor& cursor, std::string_view field) {
  const std::uint64_t at = cursor.offset();
  SIGHTLINE_TRY(const auto type, cursor.read<std::uint32_t>(field));
  SIGHTLINE_TRY(const auto n, cursor.read<std::uint64_t>(field));
  switch (type) {
    case 0:
      return read_numbers<std::uint8_t>(cursor, n, field);
    case 1:
      return read_numbers<std::int8_t>(cursor, n, field);
    case 2:
      return read_numbers<std::uint16_t>(cursor, n, field);
    case 3:
      return read_numbers<std::int16_t>(cursor, n, field);
    case 4:
      return read_numbers<std::uint32_t>(cursor, n, field);
    case 5:
      return read_numbers<std::int32_t>(cursor, n, field);
    case 6:
      return read_numbers<float>(cursor, n, field);
    case 7:
      return read_bools(cursor, n, field);
    case 8:
      return read_strings(cursor, n, field);
    case kArrayType:
      return cursor.error_at(at, "{}: arrays of arrays are not supported", field);
    case 10:
      return read_numbers<std::uint64_t>(cursor, n, field);
    case 11:
      return read_numbers<std::int64_t>(cursor, n, field);
    case 12:
      return read_numbers<double>(cursor, n, field);
    default:
      return cursor.error_at(at, "{}: unknown array type {}", field, type);
  }
}

template <typename T>
Result<GgufValue> as_value(Result<T> value) {
  if (!value) return tl::unexpected<Error>(std::move(value).error());
  return GgufValue(std::in_place_type<T>, std::move(*value));
}

}  // namespace

Result<std::string> read_gguf_string(ByteCursor& cursor, std::string_view field, std::uint64_t max_bytes) {
  SIGHTLINE_TRY(const auto length, read_length(cursor, field, max_bytes));
  std::string text(length, '\0');
  SIGHTLINE_CHECK(cursor.read_bytes(std::as_writable_bytes(std::span(text)), field));
  return text;
}

Result<GgufValue> read_gguf_value(ByteCursor& cursor, std::uint32_t type, std::string_view field) {
  switch (type) {
    case 0:
      return as_value(cursor.read<std::uint8_t>(field));
    case 1:
      return as_value(cursor.read<std::int8_t>(field));
    case 2:
      return as_value(cursor.read<std::uint16_t>(field));
    case 3:
      return as_value(cursor.read<std::int16_t>(field));
    case 4:
      return as_value(cursor.read<std::uint32_t>(field));
    case 5:
      return as_value(cursor.read<std::int32_t>(field));
    case 6:
      return as_value(cursor.read<float>(field));
    case 7:
      return as_value(read_bool(cursor, field));
    case 8:
      return as_value(read_gguf_string(cursor, field, kGgufMaxStringBytes));
    case kArrayType:
      return as_value(read_array(cursor, field));
    case 10:
      return as_value(cursor.read<std::uint64_t>(field));
    case 11:
      return as_value(cursor.read<std::int64_t>(field));
    case 12:
      return as_value(cursor.read<double>(field));
    default:
      return cursor.error("{}: unknown value type {}", field, type);
  }
}

}  // namespace sightline
