// Text that comes by standard input in place of an argument.
#pragma once

#include <string>

#include "sightline/base/error.h"

namespace sightline::apps {

/// All of standard input, at most 64 MiB. Errors: kNoInput, kInvalidContent (more).
[[nodiscard]] Result<std::string> read_standard_input();

/// Whether somebody put text there: a pipe or a file, no terminal, no /dev/null and nothing closed.
[[nodiscard]] bool is_standard_input_given();

}  // namespace sightline::apps
