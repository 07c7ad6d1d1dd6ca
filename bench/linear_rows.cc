// Linear layers in the shapes of a small decoder, held against float64 before they are timed.
#include <algorithm>
#include <cmath>

#include "bench/families.h"
#include "sightline/base/rng.h"
#include "sightline/ops/linear.h"

namespace sightline::bench {

namespace {

std::vector<float> normals(std::int64_t count, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> out(static_cast<std::size_t>(count));
  for (float& x : out) x = static_cast<float>(rng.next_normal());
  return out;
}

Result<void> run_case(const Bench& bench, std::int64_t num_rows, std::int64_t out_dim, std::int64_t in_dim) {
  const std::vector<float> w = normals(out_dim * in_dim, 1);
  const std::vector<float> x = normals(num_rows * in_dim, 2);
  std::vector<float> y(static_cast<std::size_t>(num_rows * out_dim));
  SIGHTLINE_TRY(
      const PackedLinear packed,
      PackedLinear::pack(out_dim, in_dim,
                         [&](std::int64_t begin, std::int64_t end, std::span<float> out) -> Result<void> {
                           std::copy(w.begin() + begin * in_dim, w.begin() + end * in_dim, out.begin());
                           return {};
                         }));
  const auto forward = [&] {
    linear_forward(packed, dense_view<const float, 2>(x.data(), {num_rows, in_dim}), {},
                   dense_view<float, 2>(y.data(), {num_rows, out_dim}), *bench.pool, *bench.table);
  };
  forward();
  Row row;
  row.name = fmt::format("linear-{}x{}x{}", num_rows, out_dim, in_dim);
  row.what = fmt::format("{} rows, {} outputs, {} inputs, f32", num_rows, out_dim, in_dim);
  row.work = 2.0 * static_cast<double>(num_rows * out_dim) * static_cast<double>(in_dim);
  double ours = 0.0;
  double theirs = 0.0;
  for (std::int64_t r = 0; r < num_rows; r += 37) {
    for (std::int64_t n = 0; n < out_dim; n += 11) {
      double sum = 0.0;
      double scale = 0.0;
      float plain = 0.0F;
      for (std::int64_t k = 0; k < in_dim; ++k) {
        const float a = x[static_cast<std::size_t>(r * in_dim + k)];
        const float b = w[static_cast<std::size_t>(n * in_dim + k)];
        sum += static_cast<double>(a) * b;
        scale += std::abs(static_cast<double>(a) * b);
        plain += a * b;
      }
      const double got = y[static_cast<std::size_t>(r * out_dim + n)];
      ours = std::max(ours, std::abs(got - sum) / scale);
      theirs = std::max(theirs, std::abs(static_cast<double>(plain) - sum) / scale);
    }
  }
  if (!(ours <= 2.0 * theirs)) {
    return fail(ErrorKind::kInternal, "bench: {}: scaled error {}, plain method {}", row.name, ours, theirs);
  }
  row.note = fmt::format("checked: error {:.1e}, plain {:.1e}", ours, theirs);
  measure(bench, row, forward);
  return {};
}

}  // namespace

std::vector<RowCase> linear_rows() {
  return {
      {"linear-512x1536x576", Limit::kPeak,
       [](const Bench& bench) { return run_case(bench, 512, 1536, 576); }},
      {"linear-512x576x1536", Limit::kPeak,
       [](const Bench& bench) { return run_case(bench, 512, 576, 1536); }},
  };
}

}  // namespace sightline::bench
