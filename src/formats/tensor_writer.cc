#include "sightline/formats/tensor_writer.h"

#include <algorithm>
#include <utility>

#include "quote_name.h"
#include "sightline/base/checked.h"
#include "sightline/base/file.h"
#include "sightline/formats/quantize.h"
#include "tensor_writer_plan.h"

namespace sightline {

struct TensorWriter::State {
  TensorWriterPlan plan;
  std::vector<OutputFile> files;  // the last one is being written
  std::size_t tensor_idx = 0;     // being written
  std::size_t file_end_idx = 0;   // first tensor of the next file
  std::uint64_t num_written = 0;  // bytes of the tensor
  std::vector<std::byte> converted;

  [[nodiscard]] const TensorDecl* tensor() const {
    return tensor_idx < plan.tensors.size() ? &plan.tensors[tensor_idx] : nullptr;
  }

  Result<void> open_next_file() {
    const auto& next = plan.files[files.size()];
    SIGHTLINE_TRY(OutputFile file, OutputFile::create(next.path, plan.overwrite));
    files.push_back(std::move(file));
    file_end_idx += next.num_tensors;
    return files.back().append(std::as_bytes(std::span(next.header)));
  }

  // Steps over finished (and empty) tensors, with their padding, to the one that wants data.
  Result<void> advance() {
    while (true) {
      if (tensor_idx == file_end_idx) {
        if (files.size() == plan.files.size()) return {};
        SIGHTLINE_CHECK(open_next_file());
        continue;
      }
      const std::uint64_t size = num_bytes(plan.tensors[tensor_idx]);
      if (num_written < size) return {};
      const std::vector<std::byte> zeros(*checked_align(size, plan.alignment) - size);
      SIGHTLINE_CHECK(files.back().append(zeros));
      ++tensor_idx;
      num_written = 0;
    }
  }
};

TensorWriter::TensorWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
TensorWriter::TensorWriter(TensorWriter&&) noexcept = default;
TensorWriter& TensorWriter::operator=(TensorWriter&&) noexcept = default;
TensorWriter::~TensorWriter() = default;

Result<void> TensorWriter::append_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  const auto* tensor = state_->tensor();
  if (tensor == nullptr) {
    return fail(ErrorKind::kInvalidArgument, "append: all {} tensors are written",
                state_->plan.tensors.size());
  }
  const std::uint64_t left = num_bytes(*tensor) - state_->num_written;
  if (bytes.size() > left) {
    return fail(ErrorKind::kInvalidArgument, "append: tensor {} wants {} more bytes, got {}",
                quote_name(tensor->name), left, bytes.size());
  }
  SIGHTLINE_CHECK(state_->files.back().append(bytes));
  state_->num_written += bytes.size();
  return state_->advance();
}

Result<void> TensorWriter::append_f32(std::span<const float> values) {
  if (values.empty()) return {};
  const auto* tensor = state_->tensor();
  const DataType type = tensor == nullptr ? DataType::kF32 : tensor->type;
  const auto size = row_bytes(type, values.size());
  if (!size) {
    return fail(ErrorKind::kInvalidArgument, "append: {} values split a block of {}", values.size(),
                to_string(type));
  }
  if (type == DataType::kF32) return append_bytes(std::as_bytes(values));
  state_->converted.resize(*size);
  SIGHTLINE_CHECK(quantize_row(type, values, state_->converted));
  return append_bytes(state_->converted);
}

Result<void> TensorWriter::commit() {
  if (const auto* tensor = state_->tensor()) {
    return fail(ErrorKind::kInvalidArgument, "commit: tensor {} still wants {} bytes",
                quote_name(tensor->name), num_bytes(*tensor) - state_->num_written);
  }
  for (auto& file : state_->files) SIGHTLINE_CHECK(file.commit());
  if (state_->plan.index_path.empty()) return {};
  return write_file(state_->plan.index_path, state_->plan.index, state_->plan.overwrite);
}

Result<TensorWriter> make_tensor_writer(TensorWriterPlan plan) {
  auto state = std::make_unique<TensorWriter::State>();
  state->plan = std::move(plan);
  SIGHTLINE_CHECK(state->advance());
  return TensorWriter(std::move(state));
}

std::uint64_t num_bytes(const TensorDecl& tensor) {
  const auto n = checked_num_elements(tensor.shape);
  return row_bytes(tensor.type, static_cast<std::uint64_t>(n.value_or(0))).value_or(0);
}

Result<void> check_tensor_decls(std::string_view function, const std::vector<TensorDecl>& tensors) {
  if (tensors.size() > kMaxTensors) {
    return fail(ErrorKind::kInvalidArgument, "{}: {} tensors, over the limit of {}", function, tensors.size(),
                kMaxTensors);
  }
  std::vector<std::string_view> names;
  std::uint64_t total = 0;
  for (const auto& tensor : tensors) {
    if (tensor.name.empty()) return fail(ErrorKind::kInvalidArgument, "{}: a tensor has no name", function);
    names.push_back(tensor.name);
    const auto n = checked_num_elements(tensor.shape);
    const auto row = tensor.shape.empty() ? 1 : tensor.shape.back();
    const auto bytes = n ? row_bytes(tensor.type, static_cast<std::uint64_t>(*n)) : std::nullopt;
    const auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum || !row_bytes(tensor.type, static_cast<std::uint64_t>(row))) {
      return fail(ErrorKind::kInvalidArgument, "{}: tensor {}: shape {} is refused for {}", function,
                  quote_name(tensor.name), shape_to_string(tensor.shape), to_string(tensor.type));
    }
    total = *sum;
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) {
    return fail(ErrorKind::kInvalidArgument, "{}: tensor name {} occurs twice", function, quote_name(*twice));
  }
  return {};
}

}  // namespace sightline
