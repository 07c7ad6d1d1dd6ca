// Documented ways of other libraries that differ from a declaration without being faults.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/checker/report.h"

namespace sightline::checker {

struct Convention {
  std::string_view library;    ///< the word of --follows: "torch"
  std::string_view slug;       ///< the fault that it would be if it were not documented
  std::string_view parameter;  ///< a parameter that must have `value`; empty: any
  double value = 0;
  std::string_view what;   ///< what the library does
  std::string_view how;    ///< how to get the declared meaning there, or to declare what it does
  std::string_view where;  ///< the documentation that says so
};

[[nodiscard]] std::span<const Convention> conventions();
/// The libraries that have entries, each once: what `follows` may be.
[[nodiscard]] std::vector<std::string_view> convention_libraries();

/// A fault, certain or not, that is a documented convention of `library` becomes the verdict `convention`,
/// with what it is and how to get the declared meaning. Anything else stays as it is. Errors
/// (kInvalidArgument): a library without an entry; the known ones are named.
[[nodiscard]] Result<void> apply_conventions(std::string_view library, Report& report);

}  // namespace sightline::checker
