#include "safetensors_header.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "byte_cursor.h"
#include "quote_name.h"
#include "sightline/base/json.h"

namespace sightline {

namespace {

constexpr std::uint64_t kHeaderBegin = 8;

// Follows the fixed nesting of a header: { name: { dtype, shape, data_offsets } or __metadata__: {...} }.
class HeaderParser {
 public:
  explicit HeaderParser(const std::string& file) : file_(file) {}

  Result<void> operator()(const JsonEvent& event) {
    offset_ = kHeaderBegin + event.offset;
    switch (state_) {
      case State::kStart:
        return expect(event, Kind::kBeginObject, "an object", State::kTop);
      case State::kTop:
        return on_top(event);
      case State::kNameValue:
        return expect(event, Kind::kBeginObject, "an object", State::kTensor);
      case State::kMetadataValue:
        return expect(event, Kind::kBeginObject, "an object", State::kMetadata);
      case State::kMetadata:
        return on_metadata(event);
      case State::kMetadataText:
        return on_metadata_text(event);
      case State::kTensor:
        return on_tensor(event);
      case State::kDtype:
        return on_dtype(event);
      case State::kShape:
        return expect(event, Kind::kBeginArray, "an array", State::kShapeItems);
      case State::kShapeItems:
        return on_item(event, shape_, kMaxTensorRank);
      case State::kOffsets:
        return expect(event, Kind::kBeginArray, "an array", State::kOffsetsItems);
      case State::kOffsetsItems:
        return on_item(event, offsets_, 2);
    }
    return error("unexpected JSON");
  }

  SafetensorsHeader header;

 private:
  using Kind = JsonEvent::Kind;
  enum class State {
    kStart,
    kTop,
    kNameValue,
    kMetadataValue,
    kMetadata,
    kMetadataText,
    kTensor,
    kDtype,
    kShape,
    kShapeItems,
    kOffsets,
    kOffsetsItems
  };

  [[nodiscard]] tl::unexpected<Error> error(std::string_view text) const {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: {}: {}", file_, offset_, field(), text);
  }
  [[nodiscard]] std::string field() const {
    switch (state_) {
      case State::kStart:
      case State::kTop:
        return "header";
      case State::kMetadataValue:
      case State::kMetadata:
      case State::kMetadataText:
        return "__metadata__";
      case State::kDtype:
        return fmt::format("tensor {}: dtype", quote_name(info_.name));
      case State::kShape:
      case State::kShapeItems:
        return fmt::format("tensor {}: shape", quote_name(info_.name));
      case State::kOffsets:
      case State::kOffsetsItems:
        return fmt::format("tensor {}: data_offsets", quote_name(info_.name));
      default:
        return fmt::format("tensor {}", quote_name(info_.name));
    }
  }
  Result<void> expect(const JsonEvent& event, Kind kind, std::string_view what, State next) {
    if (event.kind != kind) return error(fmt::format("expected {}", what));
    state_ = next;
    return {};
  }

  Result<void> on_top(const JsonEvent& event) {
    if (event.kind == Kind::kEndObject) return {};
    if (event.text == "__metadata__") {
      if (has_metadata_) return error("__metadata__ occurs twice");
      has_metadata_ = true;
      state_ = State::kMetadataValue;
      return {};
    }
    if (header.tensors.size() >= kMaxTensors) {
      return error(fmt::format("more than {} tensors", kMaxTensors));
    }
    if (event.text.empty()) return error("a tensor has no name");
    info_ = {};
    info_.name = event.text;
    dtype_.reset();
    shape_.reset();
    offsets_.reset();
    state_ = State::kNameValue;
    return {};
  }

  Result<void> on_metadata(const JsonEvent& event) {
    if (event.kind == Kind::kEndObject) {
      state_ = State::kTop;
      return {};
    }
    header.metadata.emplace_back(event.text, "");
    state_ = State::kMetadataText;
    return {};
  }

  Result<void> on_metadata_text(const JsonEvent& event) {
    if (event.kind != Kind::kString) {
      return error(fmt::format("value of {} is no string", quote_name(header.metadata.back().first)));
    }
    header.metadata.back().second = event.text;
    state_ = State::kMetadata;
    return {};
  }

  Result<void> on_tensor(const JsonEvent& event) {
    if (event.kind == Kind::kEndObject) return finish_tensor();
    const bool is_repeated = (event.text == "dtype" && dtype_) || (event.text == "shape" && shape_) ||
                             (event.text == "data_offsets" && offsets_);
    if (is_repeated) return error(fmt::format("{} occurs twice", event.text));
    if (event.text == "dtype") {
      state_ = State::kDtype;
    } else if (event.text == "shape") {
      shape_.emplace();
      state_ = State::kShape;
    } else if (event.text == "data_offsets") {
      offsets_.emplace();
      state_ = State::kOffsets;
    } else {
      return error(fmt::format("unknown field {}", quote_name(event.text)));
    }
    return {};
  }

  Result<void> on_dtype(const JsonEvent& event) {
    if (event.kind != Kind::kString) return error("expected a string");
    dtype_ = data_type_from_safetensors(event.text);
    if (!dtype_) return error(fmt::format("unknown type {}", quote_name(event.text)));
    state_ = State::kTensor;
    return {};
  }

  Result<void> on_item(const JsonEvent& event, std::optional<std::vector<std::int64_t>>& items,
                       std::size_t max_items) {
    if (event.kind == Kind::kEndArray) {
      state_ = State::kTensor;
      return {};
    }
    if (event.kind != Kind::kInt || event.integer < 0) return error("expected integers from 0 to 2^63 - 1");
    if (items->size() >= max_items) return error(fmt::format("more than {} numbers", max_items));
    items->push_back(event.integer);
    return {};
  }

  Result<void> finish_tensor() {
    if (!dtype_ || !shape_ || !offsets_) return error("dtype, shape or data_offsets is missing");
    if (offsets_->size() != 2) return error("data_offsets: expected two numbers");
    const auto begin = static_cast<std::uint64_t>((*offsets_)[0]);
    const auto end = static_cast<std::uint64_t>((*offsets_)[1]);
    if (end < begin) return error(fmt::format("data_offsets: {} lies before {}", end, begin));
    info_.type = *dtype_;
    info_.shape = std::move(*shape_);
    info_.file_offset = begin;
    info_.num_bytes = end - begin;
    const auto n = checked_num_elements(info_.shape);
    if (!n) return error(fmt::format("shape {} overflows", shape_to_string(info_.shape)));
    const auto bytes = row_bytes(info_.type, static_cast<std::uint64_t>(*n));
    if (!bytes) {
      return error(fmt::format("shape {} of {} does not end on a byte or overflows",
                               shape_to_string(info_.shape), to_string(info_.type)));
    }
    if (*bytes != info_.num_bytes) {
      return error(fmt::format("data_offsets: {} bytes, but shape {} of {} has {}", info_.num_bytes,
                               shape_to_string(info_.shape), to_string(info_.type), *bytes));
    }
    header.tensors.push_back(std::move(info_));
    state_ = State::kTop;
    return {};
  }

  const std::string& file_;
  State state_ = State::kStart;
  std::uint64_t offset_ = 0;
  bool has_metadata_ = false;
  TensorInfo info_;
  std::optional<DataType> dtype_;
  std::optional<std::vector<std::int64_t>> shape_;
  std::optional<std::vector<std::int64_t>> offsets_;
};

// Sorted by offset the ranges must follow each other from 0 to the end of the file: no hole, overlap or tail,
// so that no file is also something else.
Result<void> place_tensors(const ByteSource& bytes, std::uint64_t data_begin,
                           std::vector<TensorInfo>& tensors) {
  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {},
                    [&](std::uint32_t i) { return std::pair(tensors[i].file_offset, tensors[i].num_bytes); });
  const std::uint64_t data_bytes = bytes.size() - data_begin;
  std::uint64_t running = 0;
  for (const auto i : order) {
    const auto& info = tensors[i];
    if (info.file_offset != running) {
      return fail(ErrorKind::kInvalidContent,
                  "{}: byte {}: tensor {}: data begin at {} of the data, expected {} ({})", bytes.name(),
                  data_begin, quote_name(info.name), info.file_offset, running,
                  info.file_offset < running ? "overlap" : "hole");
    }
    if (info.num_bytes > data_bytes - running) {
      return fail(ErrorKind::kInvalidContent,
                  "{}: byte {}: tensor {}: {} bytes at {} of the data, {} in the file", bytes.name(),
                  data_begin, quote_name(info.name), info.num_bytes, running, data_bytes);
    }
    running += info.num_bytes;
  }
  if (running != data_bytes) {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: {} bytes follow the last tensor", bytes.name(),
                data_begin + running, data_bytes - running);
  }
  for (auto& info : tensors) info.file_offset += data_begin;
  return {};
}

Result<void> check_metadata_keys(const std::string& file, const SafetensorsMetadata& metadata) {
  std::vector<std::string_view> keys;
  keys.reserve(metadata.size());
  for (const auto& [key, value] : metadata) keys.push_back(key);
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  if (twice == keys.end()) return {};
  return fail(ErrorKind::kInvalidContent, "{}: byte {}: __metadata__: key {} occurs twice", file,
              kHeaderBegin, quote_name(*twice));
}

}  // namespace

Result<SafetensorsHeader> read_safetensors_header(const ByteSource& bytes) {
  ByteCursor cursor(bytes);
  SIGHTLINE_TRY(const auto length, cursor.read<std::uint64_t>("header length"));
  if (length > cursor.left() || length > kSafetensorsMaxHeaderBytes) {
    return cursor.error_at(0, "header length: {}, {} bytes left in the file, limit {}", length, cursor.left(),
                           kSafetensorsMaxHeaderBytes);
  }
  std::string text(length, '\0');
  SIGHTLINE_CHECK(cursor.read_bytes(std::as_writable_bytes(std::span(text)), "header"));
  HeaderParser parser(bytes.name());
  const std::string what = fmt::format("{}: header after byte {}", bytes.name(), kHeaderBegin);
  SIGHTLINE_CHECK(parse_json_events(text, what, {}, [&](const JsonEvent& event) { return parser(event); }));
  SIGHTLINE_CHECK(check_metadata_keys(bytes.name(), parser.header.metadata));
  SIGHTLINE_CHECK(place_tensors(bytes, cursor.offset(), parser.header.tensors));
  return std::move(parser.header);
}

}  // namespace sightline
