// Counts calls of operator new in this test program.
#pragma once

#include <cstdint>

namespace sightline::test {
[[nodiscard]] std::int64_t num_allocations();
}
