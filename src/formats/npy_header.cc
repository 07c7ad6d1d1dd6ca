#include "npy_header.h"

#include <array>
#include <charconv>
#include <utility>

#include "quote_name.h"

namespace sightline {

namespace {

constexpr std::array<std::pair<std::string_view, DataType>, 12> kDescrs{{
    {"<f8", DataType::kF64},
    {"<f4", DataType::kF32},
    {"<f2", DataType::kF16},
    {"<i8", DataType::kI64},
    {"<i4", DataType::kI32},
    {"<i2", DataType::kI16},
    {"|i1", DataType::kI8},
    {"<u8", DataType::kU64},
    {"<u4", DataType::kU32},
    {"<u2", DataType::kU16},
    {"|u1", DataType::kU8},
    {"|b1", DataType::kBool},
}};

// A reader of just this dict: strings in either quote, True, False, a tuple of whole numbers.
class DictParser {
 public:
  DictParser(std::string_view text, std::uint64_t offset, std::string_view what)
      : text_(text), offset_(offset), what_(what) {}

  Result<NpyHeader> parse() {
    NpyHeader header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    if (!take('{')) return error("expected '{'");
    while (!take('}')) {
      SIGHTLINE_TRY(const std::string_view key, string());
      if (!take(':')) return error("expected ':'");
      bool& seen = key == "descr" ? has_descr : key == "fortran_order" ? has_order : has_shape;
      if (key != "descr" && key != "fortran_order" && key != "shape") {
        return error(fmt::format("unknown key {}", quote_name(key)));
      }
      if (std::exchange(seen, true)) return error(fmt::format("key {} occurs twice", quote_name(key)));
      if (key == "descr") {
        SIGHTLINE_TRY(header.type, type());
      } else if (key == "fortran_order") {
        SIGHTLINE_TRY(header.is_fortran_order, boolean());
      } else {
        SIGHTLINE_TRY(header.shape, tuple());
      }
      if (!take(',')) {
        if (!take('}')) return error("expected ',' or '}'");
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) return error("bytes follow the dict");
    if (!has_descr || !has_order || !has_shape) return error("descr, fortran_order or shape is missing");
    return header;
  }

 private:
  [[nodiscard]] tl::unexpected<Error> error(std::string_view text) const {
    return fail(ErrorKind::kInvalidContent, "{}: byte {}: npy header: {}", what_, offset_ + at_, text);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string_view> string() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return error("expected a string");
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return error("a string does not end");
    const auto value = text_.substr(at_ + 1, end - at_ - 1);
    if (value.find('\\') != std::string_view::npos) return error("escapes are not supported");
    at_ = end + 1;
    return value;
  }

  Result<DataType> type() {
    SIGHTLINE_TRY(const std::string_view descr, string());
    for (const auto& [name, data_type] : kDescrs) {
      const bool is_byte = name[0] == '|';  // byte order means nothing for one byte: "<i1" is "|i1"
      if (descr == name || (is_byte && descr.size() == 3 && descr.substr(1) == name.substr(1) &&
                            (descr[0] == '<' || descr[0] == '='))) {
        return data_type;
      }
    }
    return error(fmt::format("descr {} is not supported{}", quote_name(descr),
                             descr.starts_with('>') ? " (big endian)" : ""));
  }

  Result<bool> boolean() {
    if (take_word("True")) return true;
    if (take_word("False")) return false;
    return error("fortran_order: expected True or False");
  }

  Result<std::vector<std::int64_t>> tuple() {
    if (!take('(')) return error("shape: expected '('");
    std::vector<std::int64_t> shape;
    while (!take(')')) {
      skip_space();
      std::int64_t extent = 0;
      const char* begin = text_.data() + at_;
      const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (code != std::errc() || extent < 0) return error("shape: expected whole numbers from 0 to 2^63 - 1");
      at_ += static_cast<std::size_t>(end - begin);
      if (shape.size() == kMaxTensorRank) return error(fmt::format("shape: rank over {}", kMaxTensorRank));
      shape.push_back(extent);
      if (!take(',')) {
        if (!take(')')) return error("shape: expected ',' or ')'");
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  std::uint64_t offset_;
  std::string_view what_;
  std::size_t at_ = 0;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text, std::uint64_t offset, std::string_view what) {
  return DictParser(text, offset, what).parse();
}

std::optional<std::string_view> npy_descr(DataType type) {
  for (const auto& [name, data_type] : kDescrs) {
    if (data_type == type) return name;
  }
  return std::nullopt;
}

}  // namespace sightline
