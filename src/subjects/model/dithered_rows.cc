#include "subjects/model/dithered_rows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "sightline/base/rng.h"

namespace sightline::subjects {
namespace {

std::int64_t block_of(RowType type) { return type == RowType::kQ8K ? 256 : 32; }

bool is_block_type(RowType type) { return type == RowType::kQ8 || type == RowType::kQ8K; }

// The distance of neighbouring numbers of a float type with `bits` of significand at x.
double float_step(double x, int bits) {
  if (x == 0) return 0;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent - bits);
}

double uniform_error(std::uint64_t seed, std::int64_t row, std::int64_t column) {
  const std::uint64_t x =
      mix64(mix64(seed ^ static_cast<std::uint64_t>(row)) ^ static_cast<std::uint64_t>(column));
  return static_cast<double>(x >> 11) * 0x1.0p-53 - 0.5;
}

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

}  // namespace

void dither_rows(RowType type, std::uint64_t seed, StridedView<float, 2> rows,
                 const std::vector<double>& steps) {
  if (type == RowType::kF32) return;
  const std::int64_t width = rows.shape[1];
  const std::int64_t block = is_block_type(type) ? block_of(type) : width;
  for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
    float* const row = rows.data + i * rows.strides[0];
    const double factor = steps.empty() ? 1.0 : steps[static_cast<std::size_t>(i)];
    for (std::int64_t begin = 0; begin < width; begin += block) {
      const std::int64_t end = std::min(begin + block, width);
      double block_step = 0;
      if (is_block_type(type)) {
        for (std::int64_t j = begin; j < end; ++j)
          block_step = std::max(block_step, std::abs(double{row[j]}) / 127);
      }
      for (std::int64_t j = begin; j < end; ++j) {
        const double step =
            is_block_type(type) ? block_step : float_step(row[j], type == RowType::kF16 ? 11 : 8);
        row[j] = static_cast<float>(row[j] + factor * step * uniform_error(seed, i, j));
      }
    }
  }
}

RowChange dithered(const ForeignTypes& types, std::uint64_t seed) {
  // Calls come in the order of the text, so what was seen under a name says which token a row is.
  return [types, seed, seen = std::map<std::string, std::int64_t>{}](std::string_view name,
                                                                     StridedView<float, 2> rows) mutable {
    std::int64_t& begin = seen[std::string(name)];
    const std::uint64_t own = mix64(seed ^ hash_of(name) ^ mix64(static_cast<std::uint64_t>(begin)));
    const bool is_cached = name.ends_with(".q") || name.ends_with(".k") || name.ends_with(".v");
    if (name.ends_with(".attention") && !is_block_type(types.cache)) {
      std::vector<double> steps;
      for (std::int64_t i = 0; i < rows.shape[0]; ++i)
        steps.push_back(std::sqrt(static_cast<double>(begin + i + 1)));
      dither_rows(types.cache, mix64(own), rows, steps);
    }
    dither_rows(is_cached ? types.cache : types.inputs, own, rows);
    begin += rows.shape[0];
  };
}

}  // namespace sightline::subjects
