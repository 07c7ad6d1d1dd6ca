// One tensor of one layer, changed at random: what a test plants and expects to be named. Plain loops; shares
// nothing with what finds it.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "sightline/base/rng.h"

namespace sightline::testing {

/// What was done to rows [num_tokens, num_heads * dim], with the text that a report must hold.
struct PlantedChange {
  std::string slug;       ///< "tensor.scaled"
  std::string variant;    ///< "heads"
  std::string parameter;  ///< "factor"; empty: the order
  double value = 0;
  std::vector<std::int64_t> order;
};

/// An order that moves something.
inline std::vector<std::int64_t> random_order(std::int64_t count, Rng& rng) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  do {
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.next_below(i)]);
  } while (std::ranges::is_sorted(order));
  return order;
}

/// Draws a change of tensors of `num_heads` heads of `dim` over `num_tokens` tokens.
inline PlantedChange draw_change(std::int64_t num_tokens, std::int64_t num_heads, std::int64_t dim,
                                 Rng& rng) {
  switch (rng.next_below(num_heads > 1 ? 6 : 5)) {
    case 0:
      // At least 10 % away from what it was.
      return {"tensor.scaled",
              "",
              "factor",
              std::exp2(0.15 + 2 * rng.next_uniform()) * (rng.next_below(3) == 0 ? -0.1 : 1.0),
              {}};
    case 1:
      return {"tensor.offset",
              "",
              "added",
              (rng.next_below(2) == 0 ? 0.1 : -0.1) * (1 + 9 * rng.next_uniform()),
              {}};
    case 2:
      return {"tensor.shifted",
              "",
              "rows",
              (rng.next_below(2) == 0 ? 1.0 : -1.0) * (1.0 + static_cast<double>(rng.next_below(2))),
              {}};
    case 3:
      return {"tensor.permuted", "tokens", "", 0, random_order(num_tokens, rng)};
    case 4:
      return {"tensor.permuted", "components", "", 0, random_order(num_heads * dim, rng)};
    default:
      return {"tensor.permuted", "heads", "", 0, random_order(num_heads, rng)};
  }
}

inline std::vector<double> changed(const std::vector<double>& x, const PlantedChange& change,
                                   std::int64_t num_tokens, std::int64_t num_heads, std::int64_t dim) {
  std::vector<double> y(x.size());
  const std::int64_t width = num_heads * dim;
  const auto index = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  for (std::int64_t i = 0; i < num_tokens; ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      double& to = y[index(i * width + c)];
      const double own = x[index(i * width + c)];
      if (change.slug == "tensor.scaled") {
        to = own * change.value;
      } else if (change.slug == "tensor.offset") {
        to = own + change.value;
      } else if (change.slug == "tensor.shifted") {  // what has no row to come from is 0
        const std::int64_t from = i - static_cast<std::int64_t>(change.value);
        to = from >= 0 && from < num_tokens ? x[index(from * width + c)] : 0.0;
      } else if (change.variant == "tokens") {
        to = x[index(change.order[index(i)] * width + c)];
      } else if (change.variant == "components") {
        to = x[index(i * width + change.order[index(c)])];
      } else {
        to = x[index(i * width + change.order[index(c / dim)] * dim + c % dim)];
      }
    }
  }
  return y;
}

}  // namespace sightline::testing
