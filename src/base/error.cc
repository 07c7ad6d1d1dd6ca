#include "sightline/base/error.h"

namespace sightline {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return 2;
    case ErrorKind::kInvalidContent:
      return 65;
    case ErrorKind::kNoInput:
      return 66;
    case ErrorKind::kInternal:
      return 70;
    case ErrorKind::kOutOfMemory:
      return 71;
    case ErrorKind::kCannotCreate:
      return 73;
    case ErrorKind::kIo:
      return 74;
    case ErrorKind::kTryLater:
      return 75;
    case ErrorKind::kPermission:
      return 77;
    case ErrorKind::kConfiguration:
      return 78;
  }
  return 70;
}

const char* to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid_argument";
    case ErrorKind::kInvalidContent:
      return "invalid_content";
    case ErrorKind::kNoInput:
      return "no_input";
    case ErrorKind::kInternal:
      return "internal";
    case ErrorKind::kOutOfMemory:
      return "out_of_memory";
    case ErrorKind::kCannotCreate:
      return "cannot_create";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kTryLater:
      return "try_later";
    case ErrorKind::kPermission:
      return "permission";
    case ErrorKind::kConfiguration:
      return "configuration";
  }
  return "internal";
}

}  // namespace sightline
