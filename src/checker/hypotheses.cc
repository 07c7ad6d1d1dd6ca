#include "checker/hypotheses.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace sightline::checker {
namespace {

void add_range(std::vector<double>& values, std::int64_t begin, std::int64_t end) {
  for (std::int64_t x = begin; x < end; ++x) values.push_back(static_cast<double>(x));
}

// Nearest to 0 first, so that the simplest of equal explanations is met first.
void sort_by_size(std::vector<double>& values) {
  std::ranges::stable_sort(values, {}, [](double x) { return std::abs(x); });
}

std::int64_t largest_window(const MaskSpec& mask) {
  std::int64_t n = 0;
  for (const MaskNode& node : mask.nodes) {
    if (node.op == MaskOp::kWindow) n = std::max(n, node.n);
  }
  return n;
}

std::int64_t largest_rope_pos(const Observation& o) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < o.kv_coords.size(); ++i) {
    if (o.kv_coords[i].valid) {
      most = std::max(most, o.kv_rope_pos.empty() ? o.kv_coords[i].pos : o.kv_rope_pos[i]);
    }
  }
  return most;
}

void set_offsets(const Observation& o, Hypothesis& h) {
  const std::int64_t reach = std::min<std::int64_t>(o.kv_len(), 256);
  add_range(h.values, -reach, reach + 1);
  sort_by_size(h.values);  // 0: restart
}

void set_window_keys(const Observation& o, Hypothesis& h) {
  const std::int64_t window = largest_window(o.spec.mask);
  // One that reaches every key is as far as it can be told from no window.
  const std::int64_t most = std::min<std::int64_t>(16, o.kv_len() - window) + 1;
  add_range(h.values, std::max<std::int64_t>(-16, 1 - window), std::max<std::int64_t>(most, 1));
  std::erase(h.values, 0.0);
  sort_by_size(h.values);
}

void set_fills(const Observation&, Hypothesis& h) {
  h.values = {-1e9, -1e4, -65504, -1e3, -100, -50, -30, -20, -10, -5, -2, -1, 0, -1e-9};
  h.is_continuous = true;
}

void set_thetas(const Observation& o, Hypothesis& h) {
  h.values = {10000, 500000, 1000000, 100000, 50000, 150000, 250000, 10000000};
  for (double exponent = 1.0; exponent <= 9.01; exponent += 0.25)
    h.values.push_back(std::pow(10.0, exponent));
  std::erase(h.values, o.spec.rope.theta);
  h.is_continuous = h.is_logarithmic = true;
}

void set_table_rows(const Observation& o, Hypothesis& h) {
  const std::int64_t most = largest_rope_pos(o);
  for (std::int64_t rows = 1; rows <= most; rows += rows < 256 ? 1 : rows) {
    h.values.push_back(static_cast<double>(rows));
  }
}

void set_factors(const Observation&, Hypothesis& h) {
  for (double exponent = -3.0; exponent <= 3.01; exponent += 0.125) {
    if (std::abs(exponent) > 0.01) h.values.push_back(std::exp2(exponent));
  }
  h.is_continuous = h.is_logarithmic = true;
}

struct Search {
  std::string_view parameter;
  void (*set)(const Observation&, Hypothesis&);
};

// By the name of the parameter, which means the same in every row.
constexpr Search kSearches[] = {
    {"offset", set_offsets}, {"keys", set_window_keys}, {"fill", set_fills},
    {"theta", set_thetas},   {"rows", set_table_rows},  {"factor", set_factors},
};

}  // namespace

Fault Hypothesis::fault(double value) const {
  if (values.empty()) return {kind, {}};
  return {kind, {value}};
}

std::vector<Hypothesis> hypotheses(const Observation& observation) {
  std::vector<Hypothesis> all;
  for (const FaultKind& kind : fault_table()) {
    if (kind.on_spec == nullptr && kind.on_call == nullptr && kind.on_deviation == nullptr) continue;
    Hypothesis h{&kind, {}, false, false};
    if (!kind.parameters.empty()) {
      const auto search = std::ranges::find(kSearches, kind.parameters.front().name, &Search::parameter);
      if (search == std::end(kSearches)) {
        h.values = {kind.parameters.front().value};
      } else {
        search->set(observation, h);
        if (h.values.empty()) continue;
      }
    }
    all.push_back(std::move(h));
  }
  return all;
}

}  // namespace sightline::checker
