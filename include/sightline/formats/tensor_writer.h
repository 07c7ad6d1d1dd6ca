// Writes the data of declared tensors in their order, piece by piece, so that a file may be larger than
// memory. Made by create_gguf and create_safetensors; commit publishes the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

/// A tensor to be written. `shape` is row-major, slowest dimension first.
struct TensorDecl {
  std::string name;
  DataType type = DataType::kF32;
  std::vector<std::int64_t> shape;
};

struct TensorWriterPlan;

/// Takes the data of every declared tensor in order. Nothing appears under the final names before commit;
/// without it nothing is left. After an error only destruction is useful.
class TensorWriter {
 public:
  TensorWriter(TensorWriter&&) noexcept;
  TensorWriter& operator=(TensorWriter&&) noexcept;
  ~TensorWriter();

  /// Stored bytes of the current tensor: any piece up to its end.
  /// Errors: kInvalidArgument past its end or past the last tensor; kCannotCreate, kIo.
  [[nodiscard]] Result<void> append_bytes(std::span<const std::byte> bytes);
  /// Values of the current tensor, converted to its type (F32, F16, BF16, Q8_0); whole blocks.
  /// Errors: as append_bytes and quantize_row.
  [[nodiscard]] Result<void> append_f32(std::span<const float> values);
  /// Publishes the file or files. Errors: kInvalidArgument when data are missing; kCannotCreate, kIo.
  [[nodiscard]] Result<void> commit();

 private:
  friend Result<TensorWriter> make_tensor_writer(TensorWriterPlan plan);
  struct State;
  explicit TensorWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sightline
