// The text header of a .npy file: a Python dict with the keys descr, fortran_order and shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

struct NpyHeader {
  DataType type = DataType::kF32;
  bool is_fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// `offset` is where `text` begins in the file, for messages.
[[nodiscard]] Result<NpyHeader> parse_npy_header(std::string_view text, std::uint64_t offset,
                                                 std::string_view what);

/// numpy's spelling: "<f4"; none for types that numpy lacks.
[[nodiscard]] std::optional<std::string_view> npy_descr(DataType type);

}  // namespace sightline
