// Arrays from Python as the engine takes them: float32 is read in place whatever its strides, float16 and
// bfloat16 are widened (exact). Knows no attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bind.h"
#include "sightline/spec/mask.h"

namespace sightline::python {

/// Any CPU array of the buffer protocol or DLPack, of any type and rank.
using AnyArray = nb::ndarray<nb::ro, nb::device::cpu>;

/// [tokens, heads, dim] of one sequence, or [batch, tokens, heads, dim] with sequences of one length.
///
/// float32 is a view; float16, bfloat16 and uint16 (bits of bfloat16, as numpy's ml_dtypes come here) are
/// copied to float32. Other types and ranks: ValueError that names the array.
class Rows {
 public:
  Rows(const AnyArray& array, const char* name);
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  [[nodiscard]] std::int64_t num_sequences() const { return shape_[0]; }
  [[nodiscard]] std::int64_t num_tokens() const { return shape_[1]; }  ///< of one sequence
  [[nodiscard]] std::int64_t num_heads() const { return shape_[2]; }
  [[nodiscard]] std::int64_t dim() const { return shape_[3]; }
  [[nodiscard]] StridedView<const float, 3> sequence(std::int64_t sequence) const;
  /// All sequences one after the other, where the strides allow it.
  [[nodiscard]] std::optional<StridedView<const float, 3>> all() const;

 private:
  const float* data_ = nullptr;
  std::array<std::int64_t, 4> shape_{};
  std::array<std::int64_t, 4> strides_{};
  std::vector<float> widened_;
};

/// ValueError that names the array unless it has so many sequences of so many tokens.
void require_sequences(const Rows& rows, const char* name, std::int64_t num_sequences,
                       std::int64_t num_tokens);

/// An array of one type with `Rank` axes; ValueError that names it otherwise.
template <typename T, std::size_t Rank>
StridedView<const T, Rank> typed_view(const AnyArray& array, const char* name) {
  if (array.ndim() != Rank || array.dtype() != nb::dtype<T>()) {
    throw nb::value_error(fmt::format("{} has {} axes of {} bits, expected {} of {}", name, array.ndim(),
                                      int{array.dtype().bits}, Rank, 8 * sizeof(T))
                              .c_str());
  }
  StridedView<const T, Rank> out;
  out.data = static_cast<const T*>(array.data());
  for (std::size_t i = 0; i < Rank; ++i) {
    out.shape[i] = static_cast<std::int64_t>(array.shape(i));
    out.strides[i] = array.stride(i);
  }
  return out;
}

/// Axes 1.. of one entry of axis 0.
template <typename T, std::size_t Rank>
StridedView<T, Rank - 1> entry(const StridedView<T, Rank>& from, std::int64_t index) {
  StridedView<T, Rank - 1> out;
  out.data = from.data + index * from.strides[0];
  std::copy(from.shape.begin() + 1, from.shape.end(), out.shape.begin());
  std::copy(from.strides.begin() + 1, from.strides.end(), out.strides.begin());
  return out;
}

/// Tables of the rule `dense`, one a sequence, from uint8 [num_sequences, q_len, kv_len].
std::vector<MaskTables> mask_tables(const AnyArray& dense);

}  // namespace sightline::python
