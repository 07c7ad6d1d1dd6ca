// What programs call the arrays of attention.
#pragma once

#include <span>
#include <string_view>

#include "sightline/subjects/dump/dump.h"

namespace sightline::subjects {

/// Our name and the others it is found by, most usual first.
struct ArrayNames {
  std::string_view ours;
  std::span<const std::string_view> others;
};
[[nodiscard]] std::span<const ArrayNames> array_names();

/// The array meant by one of our names: as `options` say, else by ours, else by the others. Null: not there.
/// Errors (kInvalidContent): `options` name an array that the dump lacks.
[[nodiscard]] Result<const DumpArray*> find_array(const Dump& dump, const DumpOptions& options,
                                                  std::string_view ours);

}  // namespace sightline::subjects
