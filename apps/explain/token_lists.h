// Lists as people type them: `3..4` (both ends included, on the command line only), `0,0,1`, `0..3,8`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"

namespace sightline::apps {

/// Longest list that explain takes: pictures beyond it are no pictures.
inline constexpr std::int64_t kMaxListed = 512;

/// Errors (kInvalidArgument) name the option and the piece that is no number or range.
[[nodiscard]] Result<std::vector<std::int64_t>> parse_list(std::string_view option, std::string_view text);

}  // namespace sightline::apps
