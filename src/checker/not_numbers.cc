#include "checker/not_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace sightline::checker {
namespace {

struct Shown {
  const char* name;
  const std::vector<double>& numbers;
  std::int64_t middle, last;  // sizes of the axes after the first
};

std::string words(const Shown& array, std::int64_t first, std::int64_t count) {
  const std::int64_t all = std::ssize(array.numbers);
  const std::string how_many =
      count == all ? fmt::format("all {} numbers", all) : fmt::format("{} of {} numbers", count, all);
  const char* what = std::isnan(array.numbers[static_cast<std::size_t>(first)]) ? "NaN" : "infinite";
  return fmt::format("{} is {} in {}, from {}[{}, {}, {}] on", array.name, what, how_many, array.name,
                     first / array.last / array.middle, first / array.last % array.middle,
                     first % array.last);
}

}  // namespace

std::string input_without_numbers(std::span<const Observation> observations) {
  for (const Observation& o : observations) {
    const HeadSpec& h = o.spec.heads;
    for (const Shown& array :
         {Shown{"q", o.q, h.num_q_heads, h.qk_head_dim}, Shown{"k", o.k, h.num_kv_heads, h.qk_head_dim},
          Shown{"v", o.v, h.num_kv_heads, h.v_head_dim}}) {
      const bool has_number = std::ranges::any_of(array.numbers, [](double x) { return std::isfinite(x); });
      if (!has_number && !array.numbers.empty()) return words(array, 0, std::ssize(array.numbers));
    }
  }
  return "";
}

NotNumbers output_not_a_number(std::span<const Observation> observations) {
  for (const Observation& o : observations) {
    const HeadSpec& h = o.spec.heads;
    for (const Shown& array :
         {Shown{"out", o.out, h.num_q_heads, h.v_head_dim}, Shown{"lse", o.lse, h.num_q_heads, 1},
          Shown{"weights", o.weights, o.q_len(), o.kv_len()},
          Shown{"d_q", o.d_q, h.num_q_heads, h.qk_head_dim},
          Shown{"d_k", o.d_k, h.num_kv_heads, h.qk_head_dim},
          Shown{"d_v", o.d_v, h.num_kv_heads, h.v_head_dim}}) {
      const bool may_be_infinite = &array.numbers == &o.lse;  // of a query that sees no key
      const auto is_bad = [&](double x) { return may_be_infinite ? std::isnan(x) : !std::isfinite(x); };
      const auto first = std::ranges::find_if(array.numbers, is_bad);
      if (first == array.numbers.end()) continue;
      const std::int64_t count = std::ranges::count_if(array.numbers, is_bad);
      return {words(array, first - array.numbers.begin(), count), count == std::ssize(array.numbers)};
    }
  }
  return {};
}

}  // namespace sightline::checker
