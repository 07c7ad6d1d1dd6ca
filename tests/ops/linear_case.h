// A linear layer to test: its weights packed from rows of f32, a call of it, and the promise that all weight
// types share: a row has the bits that it has alone.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "sightline/ops/linear.h"
#include "support/normals.h"

namespace sightline::test {

inline bool same_bits(const float* a, const float* b, std::int64_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
}

/// `w` is [out_dim, in_dim].
inline PackedLinear pack_rows(const std::vector<float>& w, std::int64_t out_dim, std::int64_t in_dim,
                              WeightStorage storage = WeightStorage::kF32) {
  const auto read = [&](std::int64_t begin, std::int64_t end, std::span<float> rows) {
    std::copy(w.begin() + begin * in_dim, w.begin() + end * in_dim, rows.begin());
    return Result<void>();
  };
  auto packed = storage == WeightStorage::kBf16 ? PackedLinear::pack_bf16(out_dim, in_dim, read)
                                                : PackedLinear::pack(out_dim, in_dim, read);
  EXPECT_TRUE(packed) << packed.error().message;
  return std::move(*packed);
}

/// Random weights and bias in f32.
struct Layer {
  std::int64_t out_dim;
  std::int64_t in_dim;
  std::vector<float> w = normals(out_dim * in_dim, 7);
  std::vector<float> bias = normals(out_dim, 8);

  PackedLinear pack() const { return pack_rows(w, out_dim, in_dim); }
};

struct CallOptions {
  int num_threads = 1;
  const kernels::KernelTable* table = &kernels::active_table();
  std::int64_t x_stride = 0;  ///< 0: rows of x side by side
};

/// y [num_rows, out_dim] of linear_forward.
inline std::vector<float> run(const PackedLinear& packed, const std::vector<float>& bias, const float* x,
                              std::int64_t num_rows, const CallOptions& options = {}) {
  ThreadPool pool(options.num_threads);
  std::vector<float> y(static_cast<std::size_t>(num_rows * packed.out_dim()),
                       std::numeric_limits<float>::signaling_NaN());
  const std::int64_t x_stride = options.x_stride == 0 ? packed.in_dim() : options.x_stride;
  linear_forward(packed, {x, {num_rows, packed.in_dim()}, {x_stride, 1}}, bias,
                 dense_view(y.data(), {num_rows, packed.out_dim()}), pool, *options.table);
  return y;
}

/// Rows of random x have the same bits on any number of threads and in calls of `groups` rows each.
inline void expect_rows_keep_their_bits(const PackedLinear& packed, const std::vector<float>& bias,
                                        std::int64_t num_rows, std::initializer_list<std::int64_t> groups,
                                        const kernels::KernelTable& table) {
  const std::int64_t in_dim = packed.in_dim();
  const std::int64_t out_dim = packed.out_dim();
  const auto x = normals(num_rows * in_dim, 9);
  const auto all = run(packed, bias, x.data(), num_rows, {1, &table});
  for (const int num_threads : {2, 3, 5}) {
    const auto y = run(packed, bias, x.data(), num_rows, {num_threads, &table});
    EXPECT_TRUE(same_bits(y.data(), all.data(), std::ssize(all)))
        << table.name << " in_dim " << in_dim << ", " << num_threads << " threads";
  }
  for (const std::int64_t group : groups) {
    for (std::int64_t begin = 0; begin < num_rows; begin += group) {
      const std::int64_t rows = std::min(group, num_rows - begin);
      const auto y = run(packed, bias, x.data() + begin * in_dim, rows, {2, &table});
      ASSERT_TRUE(same_bits(y.data(), all.data() + begin * out_dim, rows * out_dim))
          << table.name << " in_dim " << in_dim << " row " << begin << " in groups of " << group;
    }
  }
}

}  // namespace sightline::test
