#include "apps/standard_input.h"

#include <sys/stat.h>
#include <unistd.h>

namespace sightline::apps {

Result<std::string> read_standard_input() {
  std::string text;
  std::string block(1 << 16, '\0');
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, block.data(), block.size());
    if (n < 0) return fail(ErrorKind::kNoInput, "standard input: cannot be read");
    if (n == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(n));
    if (text.size() > std::size_t{64} << 20) {
      return fail(ErrorKind::kInvalidContent, "standard input: more than 64 MiB");
    }
  }
}

bool is_standard_input_given() {
  struct stat status{};
  return ::fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode));
}

}  // namespace sightline::apps
