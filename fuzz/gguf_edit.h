// A GGUF file as parts that can be changed into what no writer would write, and then written all the same.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "fuzz_input.h"
#include "sightline/formats/gguf.h"

namespace sightline {

struct GgufParts {
  struct Tensor {
    std::string name;
    DataType type = DataType::kF32;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> data;
  };
  std::vector<GgufEntry> entries;
  std::vector<Tensor> tensors;
};

/// Everything that a valid file holds.
[[nodiscard]] Result<GgufParts> read_parts(const std::string& path);

/// The bytes of the file after the edits that the input asks for.
[[nodiscard]] std::vector<std::byte> edited_gguf(GgufParts parts, FuzzInput& in);

}  // namespace sightline
