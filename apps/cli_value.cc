#include "apps/cli_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace sightline::apps {

namespace {

template <typename T>
Result<void> parse_integer(std::string_view what, std::string_view text, T& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code == std::errc::result_out_of_range) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} is out of range", what, quote(text));
  }
  if (code != std::errc() || end != text.data() + text.size()) {
    return fail(ErrorKind::kInvalidArgument, "{}: expected an integer, got {}", what, quote(text));
  }
  return {};
}

// The length of the UTF-8 character that `text` starts with; 0 when it is malformed or a control byte.
std::size_t printable_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead < 0x20 || lead == 0x7f ? 0 : 1;
  const std::size_t n = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
  if (lead >= 0xf5 || n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  }
  return n;
}

// Appends the first character of `text`, or the first byte as \xNN where it is no printable character;
// returns the bytes taken.
std::size_t append_printable(std::string& out, std::string_view text) {
  const std::size_t n = printable_length(text);
  if (n == 0) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
  } else {
    out += text.substr(0, n);
  }
  return std::max<std::size_t>(n, 1);
}

}  // namespace

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxBytes = 60;
  std::string out = "'";
  for (std::size_t i = 0; i < text.size();) {
    if (i >= kMaxBytes) return out + fmt::format("...' ({} bytes)", text.size());
    i += append_printable(out, text.substr(i));
  }
  return out + "'";
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kMaxBytes = 8192, kBegin = 1024, kEnd = 256;
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text.size() > kMaxBytes && i >= kBegin && i < text.size() - kEnd) {
      out += fmt::format("... ({} bytes) ...", text.size());
      i = text.size() - kEnd;
    }
    i += append_printable(out, text.substr(i));
  }
  return out;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

Result<void> parse_value(std::string_view, std::string_view text, std::string& out) {
  out = text;
  return {};
}

Result<void> parse_value(std::string_view what, std::string_view text, std::filesystem::path& out) {
  if (text.empty()) return fail(ErrorKind::kInvalidArgument, "{}: expected a file name, got ''", what);
  out = text;
  return {};
}

Result<void> parse_value(std::string_view what, std::string_view text, std::int64_t& out) {
  return parse_integer(what, text, out);
}

Result<void> parse_value(std::string_view what, std::string_view text, std::uint64_t& out) {
  return parse_integer(what, text, out);
}

Result<void> parse_value(std::string_view what, std::string_view text, double& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(out)) {
    return fail(ErrorKind::kInvalidArgument, "{}: expected a finite number, got {}", what, quote(text));
  }
  return {};
}

Result<void> parse_value(std::string_view what, std::string_view text, bool& out) {
  for (const std::string_view word : {"1", "true", "yes", "on"}) {
    if (text == word) return out = true, Result<void>{};
  }
  for (const std::string_view word : {"0", "false", "no", "off"}) {
    if (text == word) return out = false, Result<void>{};
  }
  return fail(ErrorKind::kInvalidArgument, "{}: expected true or false, got {}", what, quote(text));
}

}  // namespace sightline::apps
