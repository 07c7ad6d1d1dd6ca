// Preloaded into the program by tests: operator new fails from the N-th call on (SIGHTLINE_FAIL_NEW=N).
// No test program; a shared library of its own.
#include <cstdlib>
#include <new>

namespace {

long calls_left() {
  const char* text = std::getenv("SIGHTLINE_FAIL_NEW");
  return text == nullptr ? -1 : std::atol(text);
}

void* allocate(std::size_t size) {
  static long left = calls_left();
  if (left >= 0 && left-- == 0) {
    left = 0;  // and every later one
    return nullptr;
  }
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace

void* operator new(std::size_t size) {
  void* memory = allocate(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
