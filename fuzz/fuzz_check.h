// What a fuzz target holds true of a parser: it accepts, or refuses with the kind that bad content has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "sightline/base/error.h"

namespace sightline {

/// Ends the process unless `condition` holds; the fuzzer keeps the input.
inline void fuzz_check(bool condition) {
  if (!condition) std::abort();
}

/// Bad bytes are the file's fault: anything else than kInvalidContent is ours.
inline void fuzz_check_refusal(const Error& error) {
  fuzz_check(error.kind == ErrorKind::kInvalidContent);
  fuzz_check(error.message.find('\n') == std::string::npos);
}

inline std::vector<std::byte> fuzz_bytes(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  return {begin, begin + size};
}

}  // namespace sightline
