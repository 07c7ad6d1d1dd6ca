// Non-owning views of arrays with strides. Strides are in elements and may be 0 (a broadcast).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace sightline {

/// A view of a `Rank`-dimensional array: shape and strides in elements, the last dimension usually
/// contiguous. A stride of 0 repeats one entry. `data` may be null only when some extent is 0.
template <typename T, std::size_t Rank>
struct StridedView {
  T* data = nullptr;
  std::array<std::int64_t, Rank> shape{};
  std::array<std::int64_t, Rank> strides{};

  template <typename... I>
  [[nodiscard]] T& operator()(I... index) const {
    static_assert(sizeof...(I) == Rank);
    const std::array<std::int64_t, Rank> at{static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < Rank; ++i) offset += at[i] * strides[i];
    return data[offset];
  }

  [[nodiscard]] std::int64_t size() const {
    std::int64_t n = 1;
    for (const auto extent : shape) n *= extent;
    return n;
  }

  /// A view of const entries over the same memory.
  operator StridedView<const T, Rank>() const  // NOLINT: implicit on purpose
    requires(!std::is_const_v<T>)
  {
    return {data, shape, strides};
  }
};

/// A view of dense row-major memory.
template <typename T, std::size_t Rank>
[[nodiscard]] StridedView<T, Rank> dense_view(T* data, std::array<std::int64_t, Rank> shape) {
  StridedView<T, Rank> view{data, shape, {}};
  std::int64_t stride = 1;
  for (std::size_t i = Rank; i-- > 0;) {
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}
/// The same from a braced list, which an std::array cannot be deduced from: `dense_view(p, {rows, dim})`.
template <typename T, std::size_t Rank>
[[nodiscard]] StridedView<T, Rank> dense_view(T* data, const std::int64_t (&shape)[Rank]) {
  return dense_view<T, Rank>(data, std::to_array(shape));
}

/// Copies `count` entries that lie `stride` apart to contiguous memory.
template <typename T>
void gather_row(const T* from, std::int64_t stride, std::int64_t count, T* to) {
  if (stride == 1) {  // a loop of its own, which becomes a block copy
    std::copy_n(from, count, to);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
}

}  // namespace sightline
