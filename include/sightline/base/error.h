// Errors as values. Every public call that can fail returns Result<T>; nothing here throws,
// prints or exits. Exit codes of the command line are derived from ErrorKind in one place.
#pragma once

#include <fmt/format.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace sightline {

/// What went wrong, by who can mend it. Each kind has one exit code (see exit_code).
enum class ErrorKind {
  kInvalidArgument,  // a caller passed something the function refuses          exit 2
  kInvalidContent,   // a file or text is malformed, unsupported or over a limit exit 65
  kNoInput,          // an input is missing, unreadable or no regular file       exit 66
  kInternal,         // a broken invariant: always a bug of ours                 exit 70
  kOutOfMemory,      // memory or another system resource was refused            exit 71
  kCannotCreate,     // an output cannot be created                              exit 73
  kIo,               // a read or write failed part way                          exit 74
  kTryLater,         // a lock is held, a peer is gone                           exit 75
  kPermission,       // not allowed                                              exit 77
  kConfiguration,    // settings contradict each other or the file               exit 78
};

/// One failure. `message` names function or file, argument or field, expected and got.
struct Error {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;

/// Builds the error side of a Result: `return fail(ErrorKind::kInvalidArgument, "f: n = {}", n);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorKind kind, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected<Error>(Error{kind, fmt::format(text, std::forward<Args>(args)...)});
}

/// The exit code of the command line for `kind` (sysexits numbers where they exist).
[[nodiscard]] int exit_code(ErrorKind kind);

/// The kind as one word, for JSON reports: "invalid_argument", "invalid_content", ...
[[nodiscard]] const char* to_string(ErrorKind kind);

/// Passes an error on: `SIGHTLINE_TRY(auto x, f());` declares x or returns f's error.
#define SIGHTLINE_CONCAT_IMPL(a, b) a##b
#define SIGHTLINE_CONCAT(a, b) SIGHTLINE_CONCAT_IMPL(a, b)
#define SIGHTLINE_TRY(declaration, expression) \
  SIGHTLINE_TRY_IMPL(SIGHTLINE_CONCAT(sightline_try_, __LINE__), declaration, expression)
#define SIGHTLINE_TRY_IMPL(name, declaration, expression)                        \
  auto name = (expression);                                                      \
  if (!name) return tl::unexpected<::sightline::Error>(std::move(name).error()); \
  declaration = std::move(*name)
/// The same for Result<void>: `SIGHTLINE_CHECK(validate(x));`
#define SIGHTLINE_CHECK(expression)                                                                        \
  do {                                                                                                     \
    auto sightline_check_ = (expression);                                                                  \
    if (!sightline_check_) return tl::unexpected<::sightline::Error>(std::move(sightline_check_).error()); \
  } while (false)

}  // namespace sightline
