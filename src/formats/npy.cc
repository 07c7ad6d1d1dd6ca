#include "sightline/formats/npy.h"

#include <algorithm>
#include <cstring>

#include "npy_header.h"
#include "sightline/base/file.h"
#include "sightline/base/half.h"
#include "sightline/formats/quantize.h"

namespace sightline {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = std::size_t{1} << 20;

// Column-major bytes into row-major ones: walks the output in order and keeps the input index by counting.
std::vector<std::byte> to_row_major(std::span<const std::byte> src, const std::vector<std::int64_t>& shape,
                                    std::size_t item_bytes) {
  std::vector<std::byte> out(src.size());
  std::vector<std::size_t> stride(shape.size());
  std::size_t next = item_bytes;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    stride[d] = next;
    next *= static_cast<std::size_t>(shape[d]);
  }
  std::vector<std::int64_t> index(shape.size(), 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < out.size(); to += item_bytes) {
    std::memcpy(&out[to], &src[from], item_bytes);
    for (std::size_t d = shape.size(); d-- > 0;) {
      from += stride[d];
      if (++index[d] < shape[d]) break;
      from -= stride[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return out;
}

template <typename T, typename Out>
void convert(const std::vector<std::byte>& bytes, std::vector<Out>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
    out[i] = static_cast<Out>(value);
  }
}

Result<std::size_t> checked_size(const NpyArray& array, std::string_view function) {
  const auto n = checked_num_elements(array.shape);
  const auto bytes = n ? row_bytes(array.type, static_cast<std::uint64_t>(*n)) : std::nullopt;
  if (!bytes || *bytes != array.bytes.size() || !npy_descr(array.type)) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} bytes are no {} of shape {} that numpy knows", function,
                array.bytes.size(), to_string(array.type), shape_to_string(array.shape));
  }
  return static_cast<std::size_t>(*n);
}

template <typename T>
Result<NpyArray> from_values(std::span<const T> values, std::vector<std::int64_t> shape, DataType type) {
  NpyArray array{type, std::move(shape), {}};
  const auto bytes = std::as_bytes(values);
  array.bytes.assign(bytes.begin(), bytes.end());
  SIGHTLINE_CHECK(checked_size(array, "npy_array"));
  return array;
}

}  // namespace

Result<NpyArray> parse_npy(std::span<const std::byte> bytes, std::string_view what) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto refuse = [&](std::size_t offset, std::string_view why) {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: {}", what, offset, why);
  };
  if (!text.starts_with(kMagic)) return refuse(0, "magic: expected \\x93NUMPY");
  if (text.size() < 10) return refuse(text.size(), "version: the file ends");
  const int major = text[6];
  if (major < 1 || major > 3 || text[7] != 0) return refuse(6, "version: expected 1.0, 2.0 or 3.0");
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t begin = 8 + length_bytes;
  if (text.size() < begin) return refuse(8, "header length: the file ends");
  std::uint32_t length = 0;
  std::memcpy(&length, text.data() + 8, length_bytes);
  if (length > text.size() - begin || length > kMaxHeaderBytes) {
    return refuse(8,
                  fmt::format("header length: {}, {} bytes left in the file", length, text.size() - begin));
  }
  SIGHTLINE_TRY(NpyHeader header, parse_npy_header(text.substr(begin, length), begin, what));

  const std::size_t data_begin = begin + length;
  const auto data = bytes.subspan(data_begin);
  const auto n = checked_num_elements(header.shape);
  const auto size = n ? row_bytes(header.type, static_cast<std::uint64_t>(*n)) : std::nullopt;
  if (!size || *size != data.size()) {
    return refuse(data_begin, fmt::format("data: {} bytes are no {} of shape {}", data.size(),
                                          to_string(header.type), shape_to_string(header.shape)));
  }
  if (header.type == DataType::kBool) {
    const auto bad = std::ranges::find_if(data, [](std::byte b) { return b > std::byte{1}; });
    if (bad != data.end()) {
      return refuse(data_begin + static_cast<std::size_t>(bad - data.begin()), "data: bool must be 0 or 1");
    }
  }
  NpyArray array{header.type, std::move(header.shape), {}};
  if (header.is_fortran_order && array.shape.size() > 1) {
    array.bytes = to_row_major(data, array.shape, data_type_info(array.type).block_bytes);
  } else {
    array.bytes.assign(data.begin(), data.end());
  }
  return array;
}

Result<NpyArray> read_npy(const std::filesystem::path& path, std::uint64_t max_bytes) {
  SIGHTLINE_TRY(const std::string bytes, read_file(path, max_bytes));
  return parse_npy(std::as_bytes(std::span(bytes)), path.string());
}

Result<std::string> format_npy(const NpyArray& array) {
  SIGHTLINE_CHECK(checked_size(array, "format_npy"));
  std::string shape;
  for (const auto extent : array.shape) shape += fmt::format("{}, ", extent);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  if (array.shape.size() == 1) shape.pop_back();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   *npy_descr(array.type), shape);
  constexpr std::size_t kPrefixBytes = 10;
  constexpr std::size_t kAlignment = 64;
  const std::size_t total = (kPrefixBytes + header.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  header.resize(total - kPrefixBytes - 1, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::string out(kMagic);
  out += '\x01';
  out += '\x00';
  out.append(reinterpret_cast<const char*>(&length), sizeof(length));
  out += header;
  out.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return out;
}

Result<void> write_npy(const std::filesystem::path& path, const NpyArray& array, bool overwrite) {
  SIGHTLINE_TRY(const std::string bytes, format_npy(array));
  return write_file(path, bytes, overwrite);
}

Result<std::vector<float>> to_f32(const NpyArray& array) {
  SIGHTLINE_TRY(const std::size_t n, checked_size(array, "to_f32"));
  std::vector<float> out(n);
  SIGHTLINE_CHECK(dequantize_row(array.type, array.bytes, out));
  return out;
}

Result<std::vector<double>> to_f64(const NpyArray& array) {
  SIGHTLINE_TRY(const std::size_t n, checked_size(array, "to_f64"));
  std::vector<double> out(n);
  switch (array.type) {
    case DataType::kF64:
      convert<double>(array.bytes, out);
      break;
    case DataType::kI64:
      convert<std::int64_t>(array.bytes, out);
      break;
    case DataType::kI32:
      convert<std::int32_t>(array.bytes, out);
      break;
    case DataType::kU64:
      convert<std::uint64_t>(array.bytes, out);
      break;
    case DataType::kU32:
      convert<std::uint32_t>(array.bytes, out);
      break;
    default: {  // every other type is exact in f32
      SIGHTLINE_TRY(const std::vector<float> values, to_f32(array));
      std::ranges::copy(values, out.begin());
    }
  }
  return out;
}

Result<NpyArray> npy_array(std::span<const float> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DataType::kF32);
}

Result<NpyArray> npy_array(std::span<const double> values, std::vector<std::int64_t> shape) {
  return from_values(values, std::move(shape), DataType::kF64);
}

}  // namespace sightline
