#include "arrays.h"

#include "sightline/base/half.h"

namespace sightline::python {

namespace {

template <typename Widen>
std::vector<float> widen(const std::uint16_t* data, const std::array<std::int64_t, 4>& shape,
                         const std::array<std::int64_t, 4>& strides, Widen to_float) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t t = 0; t < shape[1]; ++t) {
      for (std::int64_t h = 0; h < shape[2]; ++h) {
        const std::uint16_t* row = data + b * strides[0] + t * strides[1] + h * strides[2];
        for (std::int64_t d = 0; d < shape[3]; ++d) out.push_back(to_float(row[d * strides[3]]));
      }
    }
  }
  return out;
}

std::string describe(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(type.code);
  const char* kind = code == Code::Float    ? "float"
                     : code == Code::Bfloat ? "bfloat"
                     : code == Code::Int    ? "int"
                     : code == Code::UInt   ? "uint"
                     : code == Code::Bool   ? "bool"
                                            : "another type of ";
  return fmt::format("{}{}", kind, int{type.bits});
}

}  // namespace

Rows::Rows(const AnyArray& array, const char* name) {
  if (array.ndim() != 3 && array.ndim() != 4) {
    throw nb::value_error(
        fmt::format("{} has {} axes, expected [tokens, heads, dim] or [batch, tokens, heads, dim]", name,
                    array.ndim())
            .c_str());
  }
  const std::size_t first = 4 - array.ndim();
  shape_[0] = 1;
  for (std::size_t i = first; i < 4; ++i) {
    shape_[i] = static_cast<std::int64_t>(array.shape(i - first));
    strides_[i] = array.stride(i - first);
  }
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<float>()) {
    data_ = static_cast<const float*>(array.data());
    return;
  }
  const auto* bits = static_cast<const std::uint16_t*>(array.data());
  const auto code = static_cast<nb::dlpack::dtype_code>(type.code);
  if (type.bits == 16 && type.lanes == 1 && code == nb::dlpack::dtype_code::Float) {
    widened_ = widen(bits, shape_, strides_, [](std::uint16_t x) { return to_f32(F16{x}); });
  } else if (type.bits == 16 && type.lanes == 1 &&
             (code == nb::dlpack::dtype_code::Bfloat || code == nb::dlpack::dtype_code::UInt)) {
    widened_ = widen(bits, shape_, strides_, [](std::uint16_t x) { return to_f32(Bf16{x}); });
  } else {
    throw nb::value_error(
        fmt::format("{} is {}, expected float32 (or float16, bfloat16)", name, describe(type)).c_str());
  }
  data_ = widened_.data();
  strides_ = dense_view<const float, 4>(data_, shape_).strides;
}

StridedView<const float, 3> Rows::sequence(std::int64_t sequence) const {
  return {data_ + sequence * strides_[0],
          {shape_[1], shape_[2], shape_[3]},
          {strides_[1], strides_[2], strides_[3]}};
}

std::optional<StridedView<const float, 3>> Rows::all() const {
  if (shape_[0] != 1 && shape_[1] != 1 && strides_[0] != shape_[1] * strides_[1]) return std::nullopt;
  const std::int64_t row_stride = shape_[1] == 1 && shape_[0] != 1 ? strides_[0] : strides_[1];
  return StridedView<const float, 3>{
      data_, {shape_[0] * shape_[1], shape_[2], shape_[3]}, {row_stride, strides_[2], strides_[3]}};
}

void require_sequences(const Rows& rows, const char* name, std::int64_t num_sequences,
                       std::int64_t num_tokens) {
  if (rows.num_sequences() == num_sequences && rows.num_tokens() == num_tokens) return;
  throw nb::value_error(fmt::format("{} has {} sequences of {} tokens, expected {} of {}", name,
                                    rows.num_sequences(), rows.num_tokens(), num_sequences, num_tokens)
                            .c_str());
}

std::vector<MaskTables> mask_tables(const AnyArray& dense) {
  const auto all = typed_view<std::uint8_t, 3>(dense, "dense");
  std::vector<MaskTables> tables(static_cast<std::size_t>(all.shape[0]));
  for (std::size_t s = 0; s < tables.size(); ++s) tables[s].dense = entry(all, static_cast<std::int64_t>(s));
  return tables;
}

}  // namespace sightline::python
