// What the parts of the extension module share: errors, arrays from Python, tokens from arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "sightline/base/error.h"
#include "sightline/base/strided_view.h"
#include "sightline/checker/observation.h"
#include "sightline/checker/report.h"
#include "sightline/spec/attention_spec.h"
#include "sightline/spec/coords.h"

namespace sightline::python {

namespace nb = nanobind;

/// ValueError with the text of the error.
template <typename T>
T unwrap(Result<T> result) {
  if (!result) throw nb::value_error(result.error().message.c_str());
  return std::move(*result);
}
inline void unwrap(Result<void> result) {
  if (!result) throw nb::value_error(result.error().message.c_str());
}

// Any CPU array with the buffer protocol or DLPack, without a copy; strides may be anything.
template <typename T, std::size_t Rank>
using Input = nb::ndarray<const T, nb::ndim<Rank>, nb::device::cpu>;

template <typename Array>
auto view3(const Array& array) {
  StridedView<const std::remove_const_t<typename Array::Scalar>, 3> out;
  out.data = array.data();
  for (std::size_t i = 0; i < 3; ++i) {
    out.shape[i] = static_cast<std::int64_t>(array.shape(i));
    out.strides[i] = array.stride(i);
  }
  return out;
}

// A new numpy array that owns `values`.
template <typename T>
nb::ndarray<nb::numpy, T> to_numpy(std::vector<T> values, std::vector<std::size_t> shape) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T>(owned->data(), shape.size(), shape.data(), owner);
}

/// Tokens as the Python side hands them over: columns of one length.
struct Tokens {
  std::vector<TokenCoord> coords;
  std::vector<std::int64_t> rope_pos;
};

/// "f64", "f32", "bf16" or "f16"; f32 for anything else.
checker::ElementType element_type(const std::string& type);

/// A report as the Python side takes it: (JSON, text, HTML page).
nb::tuple report_tuple(const checker::Report& report, const std::string& declared,
                       const std::string& reproducer);
inline nb::tuple report_tuple(const checker::Report& report, const AttentionSpec& spec,
                              const std::string& reproducer) {
  return report_tuple(report, describe(spec), reproducer);
}

/// True once the interpreter wants to raise (Ctrl-C). Takes its lock, which calls have left.
inline bool wants_to_raise() {
  const nb::gil_scoped_acquire acquired;
  return PyErr_CheckSignals() != 0;
}

void bind_spec(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_attention_backward(nb::module_& m);
void bind_reference(nb::module_& m);
void bind_rope(nb::module_& m);
void bind_kv_cache(nb::module_& m);
void bind_checker(nb::module_& m);
void bind_check(nb::module_& m);
void bind_batch(nb::module_& m);
void bind_loss(nb::module_& m);
void bind_report(nb::module_& m);

}  // namespace sightline::python
