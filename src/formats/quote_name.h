// Names from files, made safe to print: control and non-ASCII bytes are escaped, long names are cut.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sightline {

inline std::string quote_name(std::string_view text) {
  constexpr std::size_t kMaxShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += text.size() > kMaxShown ? fmt::format("...' ({} bytes)", text.size()) : "'";
  return out;
}

}  // namespace sightline
