// What a fuzz target holds true of a parser: it accepts, or refuses with the kind that bad content has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

/// Ends the process unless `condition` holds, and says where; the fuzzer keeps the input.
inline void fuzz_check(bool condition, std::source_location at = std::source_location::current()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%u: a condition does not hold\n", at.file_name(), at.line());
  std::abort();
}

/// Bad bytes are the file's fault: anything else than kInvalidContent is ours.
inline void fuzz_check_refusal(const Error& error,
                               std::source_location at = std::source_location::current()) {
  const bool is_refusal =
      error.kind == ErrorKind::kInvalidContent && error.message.find('\n') == std::string::npos;
  if (!is_refusal) std::fprintf(stderr, "%s\n", error.message.c_str());
  fuzz_check(is_refusal, at);
}

inline std::vector<std::byte> fuzz_bytes(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  return {begin, begin + size};
}

}  // namespace sightline
