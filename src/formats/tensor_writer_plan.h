// What a format hands to the TensorWriter: the files, their headers and which tensors follow each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_writer.h"

namespace sightline {

struct TensorWriterPlan {
  struct File {
    std::filesystem::path path;
    std::string header;           // everything before the first tensor
    std::size_t num_tensors = 0;  // taken from `tensors` in order
  };
  std::vector<File> files;
  std::vector<TensorDecl> tensors;
  std::uint64_t alignment = 1;       // each tensor is padded with zeros to it
  std::filesystem::path index_path;  // written last, when not empty
  std::string index;
  bool overwrite = false;
};

/// Creates the first file and writes its header.
[[nodiscard]] Result<TensorWriter> make_tensor_writer(TensorWriterPlan plan);

/// Errors (kInvalidArgument) for an empty or repeated name, a refused shape, rows that split a block.
[[nodiscard]] Result<void> check_tensor_decls(std::string_view function,
                                              const std::vector<TensorDecl>& tensors);

/// Stored bytes of a checked declaration.
[[nodiscard]] std::uint64_t num_bytes(const TensorDecl& tensor);

}  // namespace sightline
