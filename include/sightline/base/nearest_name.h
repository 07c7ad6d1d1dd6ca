// Which known name a misspelt one was meant to be. For messages: nothing is ever taken for another name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sightline {

/// The nearest of `names` to `name` by single letters put in, left out or changed, a third of them at most
/// (two of a short name); or the first that begins with three or more letters that were typed; or "" when
/// none is near. Cost: |name| * |candidate| a name; a name of more than 40 bytes has no neighbour.
[[nodiscard]] std::string nearest_name(std::string_view name, const std::vector<std::string>& names);

}  // namespace sightline
