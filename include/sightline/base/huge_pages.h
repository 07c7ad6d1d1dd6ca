// Large pages for arrays that are streamed through: fewer misses of the address cache.
#pragma once

#include <cstddef>
#include <span>

namespace sightline {

/// Asks the system to back the whole 2 MiB stretches of `bytes` with large pages when they are first written.
/// A wish: nothing changes but speed, and nothing is said when the system has none.
void prefer_huge_pages(std::span<std::byte> bytes);

}  // namespace sightline
