#include "allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> current_bytes{0};
std::atomic<std::size_t> base_bytes{0};
std::atomic<std::size_t> highest_bytes{0};
std::atomic<std::uint64_t> requests{0};
std::atomic<std::uint64_t> failing_request{0};

void* allocate(std::size_t size) {
  const std::uint64_t request = ++requests;
  if (request == failing_request.load()) throw std::bad_alloc();
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  const std::size_t live = current_bytes += ::malloc_usable_size(p);
  std::size_t seen = highest_bytes.load();
  while (live > seen && !highest_bytes.compare_exchange_weak(seen, live)) {
  }
  return p;
}

void release(void* p) {
  if (p == nullptr) return;
  current_bytes -= ::malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept try {
  return allocate(size);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }

namespace sightline::testing_formats {

std::size_t peak_bytes() { return highest_bytes.load() - base_bytes.load(); }
void reset_peak() {
  base_bytes = current_bytes.load();
  highest_bytes = current_bytes.load();
}
std::size_t live_bytes() { return current_bytes.load(); }
std::uint64_t num_allocations() { return requests.load(); }
void fail_allocation(std::uint64_t n) { failing_request = n == 0 ? 0 : requests.load() + n; }

}  // namespace sightline::testing_formats
