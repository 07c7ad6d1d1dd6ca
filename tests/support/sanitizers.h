// Which sanitizer a test program is built with: some limits and some sizes differ there.
#pragma once

namespace sightline::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

}  // namespace sightline::testing
