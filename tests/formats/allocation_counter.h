// Counts what operator new hands out in this test program, and can refuse the n-th request.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sightline::testing_formats {

/// Bytes allocated at most at one time since `reset_peak`, beyond those live then.
std::size_t peak_bytes();
void reset_peak();
/// Bytes allocated now.
std::size_t live_bytes();
/// Number of requests since the start.
std::uint64_t num_allocations();
/// The n-th request from now on (1 is the next) throws std::bad_alloc; 0 switches it off.
void fail_allocation(std::uint64_t n);

}  // namespace sightline::testing_formats
