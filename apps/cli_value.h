// Texts of the command line as values, and values as text that may stand in a message.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/nearest_name.h"

namespace sightline::apps {

/// Converts the text of one value. `what` names the option in the message.
[[nodiscard]] Result<void> parse_value(std::string_view what, std::string_view text, std::string& out);
[[nodiscard]] Result<void> parse_value(std::string_view what, std::string_view text, std::int64_t& out);
[[nodiscard]] Result<void> parse_value(std::string_view what, std::string_view text, std::uint64_t& out);
[[nodiscard]] Result<void> parse_value(std::string_view what, std::string_view text, double& out);
[[nodiscard]] Result<void> parse_value(std::string_view what, std::string_view text, bool& out);
[[nodiscard]] Result<void> parse_value(std::string_view what, std::string_view text,
                                       std::filesystem::path& out);

/// Text as it may stand in a message: control bytes and invalid UTF-8 escaped, cut to 60 bytes.
[[nodiscard]] std::string quote(std::string_view text);
/// A message that may hold a file's name as one line without control bytes; the middle of a long one is left
/// out.
[[nodiscard]] std::string one_line(std::string_view text);
/// One word of a command that a person may paste into a shell: as it is where a shell leaves it alone, else
/// in single quotes.
[[nodiscard]] std::string shell_word(std::string_view text);

namespace detail {

template <typename T>
Result<void> store(std::string_view what, std::string_view text, T& out) {
  return parse_value(what, text, out);
}
inline Result<void> store(std::string_view what, std::string_view text, int& out) {
  std::int64_t wide = 0;
  SIGHTLINE_CHECK(parse_value(what, text, wide));
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} is out of range", what, quote(text));
  }
  out = static_cast<int>(wide);
  return {};
}
template <typename T>
Result<void> store(std::string_view what, std::string_view text, std::optional<T>& out) {
  return store(what, text, out.emplace());
}
template <typename T>
Result<void> store(std::string_view what, std::string_view text, std::vector<T>& out) {
  T value{};
  SIGHTLINE_CHECK(store(what, text, value));
  out.push_back(std::move(value));
  return {};
}

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;

template <typename T>
std::string default_text(const T&) {
  return {};
}
inline std::string default_text(const std::string& v) { return v; }
inline std::string default_text(const std::filesystem::path& v) { return v.string(); }
inline std::string default_text(int v) { return fmt::format("{}", v); }
inline std::string default_text(std::int64_t v) { return fmt::format("{}", v); }
inline std::string default_text(std::uint64_t v) { return fmt::format("{}", v); }
inline std::string default_text(double v) { return fmt::format("{}", v); }

}  // namespace detail

}  // namespace sightline::apps
