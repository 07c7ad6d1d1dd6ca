// UTF-8: finding what is invalid, stepping by characters, replacing what cannot be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sightline::text {

/// How the bytes at the start of a text read.
struct Utf8Step {
  std::size_t length = 0;   // bytes of the character, or of the maximal invalid part (at least 1)
  bool valid = false;       // a whole, well-formed character (no overlong form, surrogate or above U+10FFFF)
  bool truncated = false;   // not valid only because the text ends: more bytes could complete it
  char32_t code_point = 0;  // if valid
};

/// Reads one step of `text`, which is not empty. Invalid parts are cut as the Unicode standard advises
/// (chapter 3, "U+FFFD substitution of maximal subparts").
[[nodiscard]] Utf8Step utf8_step(std::string_view text);

/// The offset of the first invalid byte, or npos.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text);

/// Appends a code point as UTF-8.
void append_utf8(std::string& out, char32_t code_point);

/// Moves all whole characters from the front of `held` to the result, each maximal invalid part as U+FFFD.
/// What could still become a character stays, unless `final`.
[[nodiscard]] std::string take_whole_utf8(std::string& held, bool final);

}  // namespace sightline::text
