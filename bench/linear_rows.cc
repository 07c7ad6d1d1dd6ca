// Linear layers by weight type, size and number of rows, each held against float64 before it is timed.
// Matrices are taken in rotation over more memory than the last cache of most machines holds.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/draw.h"
#include "bench/families.h"
#include "sightline/ops/linear.h"

namespace sightline::bench {

namespace {

constexpr std::size_t kRotatedBytes = std::size_t{512} << 20;
constexpr std::int64_t kFewRows = 16;  // up to here reading the weights may be what limits

struct WeightType {
  const char* name;
  WeightStorage storage;
  QuantKind kind = QuantKind::kQ8_0;
};

constexpr WeightType kTypes[] = {
    {"f32", WeightStorage::kF32},
    {"bf16", WeightStorage::kBf16},
    {"q8_0", WeightStorage::kQuantised, QuantKind::kQ8_0},
    {"q4_0", WeightStorage::kQuantised, QuantKind::kQ4_0},
    {"q4_1", WeightStorage::kQuantised, QuantKind::kQ4_1},
    {"q4_k", WeightStorage::kQuantised, QuantKind::kQ4_K},
    {"q5_k", WeightStorage::kQuantised, QuantKind::kQ5_K},
    {"q6_k", WeightStorage::kQuantised, QuantKind::kQ6_K},
};

struct LinearCase {
  WeightType type;
  std::int64_t out_dim = 0, in_dim = 0, num_rows = 0;
};

QuantBlock random_block(QuantKind kind, Rng& rng) {
  const QuantTraits traits = quant_traits(kind);
  QuantBlock block;
  std::memset(static_cast<void*>(&block), 0, sizeof(block));
  block.d = to_f16(0.01F);
  block.m = to_f16(-0.05F);
  for (std::uint8_t& q : block.q) q = static_cast<std::uint8_t>(rng.next_u64() >> (64 - traits.bits));
  for (std::int8_t& scale : block.scale) scale = static_cast<std::int8_t>(rng.next_u64() & 15U);
  for (std::uint8_t& min : block.min) min = static_cast<std::uint8_t>(rng.next_u64() & 7U);
  return block;
}

// Equal seeds give equal weights; only the first of a rotation is checked, all are read.
Result<PackedLinear> make_weights(const LinearCase& c) {
  Rng rng(1);
  if (c.type.storage == WeightStorage::kQuantised) {
    std::vector<QuantBlock> few(61);  // no divisor of a row: rows differ
    for (QuantBlock& block : few) block = random_block(c.type.kind, rng);
    std::size_t at = 0;
    return PackedLinear::pack_quantised(
        c.type.kind, c.out_dim, c.in_dim,
        [&](std::int64_t, std::int64_t, std::span<QuantBlock> out) -> Result<void> {
          for (QuantBlock& block : out) block = few[at++ % few.size()];
          return {};
        });
  }
  const std::vector<float> few = normals(8191, rng);
  std::size_t at = 0;
  const auto read = [&](std::int64_t, std::int64_t, std::span<float> out) -> Result<void> {
    for (float& x : out) x = few[at++ % few.size()];
    return {};
  };
  return c.type.storage == WeightStorage::kF32 ? PackedLinear::pack(c.out_dim, c.in_dim, read)
                                               : PackedLinear::pack_bf16(c.out_dim, c.in_dim, read);
}

// What an output may err by: twice what a plain sum in f32 does, and where x is rounded first, half a step of
// each of its numbers.
struct Expected {
  double value = 0.0;
  double bound = 0.0;
};

Expected expected_output(const LinearCase& c, std::span<const float> w, std::span<const float> x) {
  Expected out;
  float plain = 0.0F;
  double rounding = 0.0;
  double size = 0.0;
  for (std::size_t k = 0; k < w.size(); ++k) {
    const double product = static_cast<double>(w[k]) * x[k];
    out.value += product;
    plain += w[k] * x[k];
    size += std::abs(product);
    if (c.type.storage == WeightStorage::kBf16) rounding += std::abs(product) * 0x1p-9;
    if (c.type.storage == WeightStorage::kQuantised) {
      float largest = 0.0F;
      for (std::size_t j = k / 32 * 32; j < k / 32 * 32 + 32; ++j)
        largest = std::max(largest, std::abs(x[j]));
      rounding += std::abs(static_cast<double>(w[k])) * largest / 254;
    }
  }
  // 16 roundings of a number of that size: one plain sum alone may be near by luck.
  out.bound = 2 * std::abs(plain - out.value) + size * 1e-6 + rounding;
  return out;
}

Result<double> largest_share(const LinearCase& c, const PackedLinear& weights, std::span<const float> x,
                             std::span<const float> y) {
  double largest = 0.0;
  std::vector<float> w(static_cast<std::size_t>(c.in_dim));
  for (std::int64_t n = 0; n < c.out_dim; n += 61) {
    weights.unpack_row(n, w);
    for (std::int64_t i = 0; i < c.num_rows; i += 37) {
      const Expected expected = expected_output(
          c, w, x.subspan(static_cast<std::size_t>(i * c.in_dim), static_cast<std::size_t>(c.in_dim)));
      const double error = std::abs(y[static_cast<std::size_t>(i * c.out_dim + n)] - expected.value);
      largest = std::max(largest, error / expected.bound);
      if (!(error <= expected.bound)) {
        return fail(ErrorKind::kInternal, "bench: linear-{}: row {}, output {}: error {}, bound {}",
                    c.type.name, i, n, error, expected.bound);
      }
    }
  }
  return largest;
}

// The peak of the products that the type is made of.
Limit peak_of(const Bench& bench, const WeightType& type) {
  if (type.storage == WeightStorage::kBf16 && bench.table->bf16_dot) return Limit::kPeakBf16;
  if (type.storage == WeightStorage::kQuantised && bench.table->int8_dot) return Limit::kPeakInt8;
  return Limit::kPeak;
}

Result<void> run_linear_case(const Bench& bench, const std::string& name, const LinearCase& c) {
  std::vector<PackedLinear> weights;
  std::size_t bytes = 0;
  do {
    SIGHTLINE_TRY(PackedLinear next, make_weights(c));
    bytes = next.bytes();
    weights.push_back(std::move(next));
  } while (c.num_rows <= kFewRows && weights.size() * bytes < kRotatedBytes);
  Rng rng(2);
  const std::vector<float> x = normals(c.num_rows * c.in_dim, rng);
  std::vector<float> y(static_cast<std::size_t>(c.num_rows * c.out_dim));
  std::size_t turn = 0;
  const auto forward = [&] {
    linear_forward(weights[turn++ % weights.size()],
                   dense_view<const float, 2>(x.data(), {c.num_rows, c.in_dim}), {},
                   dense_view<float, 2>(y.data(), {c.num_rows, c.out_dim}), *bench.pool, *bench.table);
  };
  forward();
  SIGHTLINE_TRY(const double share, largest_share(c, weights.front(), x, y));
  Row row;
  row.name = name;
  row.what =
      fmt::format("{} rows, {} outputs, {} inputs, weights {}", c.num_rows, c.out_dim, c.in_dim, c.type.name);
  const double operations = 2.0 * static_cast<double>(c.num_rows * c.out_dim) * static_cast<double>(c.in_dim);
  row.limit = peak_of(bench, c.type);
  row.work = operations;
  if (c.num_rows <= kFewRows) {  // the nearer of the two limits
    const double reading = static_cast<double>(bytes) / calibrate(bench, Limit::kBandwidth);
    if (reading > operations / calibrate(bench, row.limit)) {
      row.limit = Limit::kBandwidth;
      row.work = static_cast<double>(bytes);
    }
  }
  row.note = fmt::format("checked: error at most {:.2f} of its bound; {} matrices of {:.1f} MB in turn",
                         share, weights.size(), static_cast<double>(bytes) / 1e6);
  measure(bench, row, forward);
  return {};
}

}  // namespace

std::vector<RowCase> linear_rows() {
  std::vector<RowCase> rows;
  const auto add = [&](const WeightType& type, std::int64_t out_dim, std::int64_t in_dim,
                       std::int64_t count) {
    const std::string name = fmt::format("linear-{}-{}x{}-{}", type.name, out_dim, in_dim, count);
    const LinearCase c{type, out_dim, in_dim, count};
    rows.push_back({name, Limit::kPeak, [=](const Bench& bench) { return run_linear_case(bench, name, c); }});
  };
  for (const WeightType& type : kTypes) {
    for (const std::int64_t count : {1, 4, 8, 16, 64, 512}) add(type, 4096, 4096, count);
  }
  // The widths of a small decoder; blocks of 256 do not divide 576.
  for (const WeightType& type : kTypes) {
    if (type.storage == WeightStorage::kQuantised && quant_traits(type.kind).block_values > 32) continue;
    for (const std::int64_t count : {1, 64, 512}) {
      add(type, 1536, 576, count);
      add(type, 576, 1536, count);
    }
  }
  return rows;
}

}  // namespace sightline::bench
