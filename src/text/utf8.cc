#include "text/utf8.h"

#include <cstdint>

namespace sightline::text {

Utf8Step utf8_step(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true, false, lead};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false, 0};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Table 3-7 of the Unicode standard: the second byte alone rules out overlong forms, surrogates and too
  // much.
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code_point = lead & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {i, false, true, 0};
    const std::uint8_t next = byte(i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return {i, false, false, 0};
    code_point = (code_point << 6) | (next & 0x3F);
  }
  return {length, true, false, code_point};
}

std::size_t find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!step.valid) return at;
    at += step.length;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
    return;
  }
  const int num_more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  const char32_t lead = num_more == 1 ? 0xC0 : num_more == 2 ? 0xE0 : 0xF0;
  out.push_back(static_cast<char>(lead | (c >> (6 * num_more))));
  for (int i = num_more - 1; i >= 0; --i) out.push_back(static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F)));
}

std::string take_whole_utf8(std::string& held, bool final) {
  std::string out;
  std::size_t at = 0;
  while (at < held.size()) {
    const Utf8Step step = utf8_step(std::string_view(held).substr(at));
    if (step.truncated && !final) break;
    if (step.valid) {
      out.append(held, at, step.length);
    } else {
      out.append("\xEF\xBF\xBD");
    }
    at += step.length;
  }
  held.erase(0, at);
  return out;
}

}  // namespace sightline::text
