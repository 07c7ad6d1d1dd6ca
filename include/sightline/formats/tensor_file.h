// The tensors of a file or folder, whatever its format: list, find, read. Opening reads no tensor data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/formats/byte_source.h"
#include "sightline/formats/tensor_info.h"

namespace sightline {

/// A set of named tensors over one or more byte sources. Immutable after creation; reads from several
/// threads are safe. GgufFile and SafetensorsFile are TensorSources; `create` makes one from parts.
class TensorSource {
 public:
  /// Checks that names differ and that every range lies in its file and has the bytes that type and shape
  /// ask for. `name` is used in messages. Errors: kInvalidContent naming the tensor.
  [[nodiscard]] static Result<TensorSource> create(std::string name, std::vector<BytesPtr> files,
                                                   std::vector<TensorInfo> tensors);

  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(TensorSource&&) = default;
  virtual ~TensorSource() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// In the order of the file.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  /// The tensor of this name, or null. Cost: O(log n).
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// What is odd about the files but no error, one line each.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  /// The stored bytes of a tensor of this source; `out` must be exactly info.num_bytes long.
  /// Errors: kInvalidArgument (size), kInvalidContent (the file shrank), kIo.
  [[nodiscard]] Result<void> read_into(const TensorInfo& info, std::span<std::byte> out) const;

  /// Rows [row_begin, row_end) in storage form; `out` is (row_end - row_begin) * row_bytes long.
  /// Errors: as read_into; kInvalidContent when rows of this type do not start on a byte.
  [[nodiscard]] Result<void> read_rows(const TensorInfo& info, std::int64_t row_begin, std::int64_t row_end,
                                       std::span<std::byte> out) const;

  /// Rows [row_begin, row_end) as f32, shape [row_end - row_begin, info.row_length()]; `out` has exactly
  /// that size. Reads those rows only, in pieces of at most 256 KiB or one row (F32 straight into `out`).
  /// Errors: as read_rows; kInvalidContent for a type that is only named (the message names tensor and type).
  [[nodiscard]] Result<void> read_f32(const TensorInfo& info, std::int64_t row_begin, std::int64_t row_end,
                                      std::span<float> out) const;

 protected:
  TensorSource() = default;
  void add_warning(std::string text) { warnings_.push_back(std::move(text)); }
  [[nodiscard]] const std::vector<BytesPtr>& files() const { return files_; }

 private:
  [[nodiscard]] Result<void> check_rows(const TensorInfo& info, std::int64_t row_begin,
                                        std::int64_t row_end) const;

  std::string name_;
  std::vector<BytesPtr> files_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::uint32_t> by_name_;  // indices into tensors_, sorted by name
  std::vector<std::string> warnings_;
};

}  // namespace sightline
