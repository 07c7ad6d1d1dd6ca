#include "checker/hypotheses.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "sightline/spec/row_order.h"

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
  if (o.spec.rope.pairing != RopePairing::kNone) std::erase(h.values, o.spec.rope.theta);
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

void set_rules(const Observation& o, Hypothesis& h) {
  add_range(h.values, 1, std::ranges::count_if(o.spec.mask.nodes, is_leaf, &MaskNode::op) + 1);
}

void set_origins(const Observation& o, Hypothesis& h) {
  std::int64_t n = 0;
  for (const MaskNode& node : o.spec.mask.nodes) {
    if (node.op == MaskOp::kChunk) n = std::max(n, node.n);
  }
  // An origin and the one a whole chunk away are the same.
  const std::int64_t reach = std::min<std::int64_t>(n / 2, 64);
  add_range(h.values, -reach, reach + 1);
  std::erase(h.values, 0.0);
  sort_by_size(h.values);
}

// Rings as large as a window or chunk of the mask come first, then all that wrap here.
void set_slots(const Observation& o, Hypothesis& h) {
  const std::int64_t most = largest_rope_pos(o);
  const auto add = [&](std::int64_t n) {
    const auto value = static_cast<double>(n);
    if (n >= 1 && n <= most && std::ranges::count(h.values, value) == 0) h.values.push_back(value);
  };
  for (const MaskNode& node : o.spec.mask.nodes) {
    if (node.op == MaskOp::kWindow || node.op == MaskOp::kChunk) add(node.n);
  }
  for (std::int64_t n = 2; n <= std::min<std::int64_t>(most, 64); ++n) add(n);
  for (std::int64_t n = 128; n <= most; n *= 2) add(n);
}

void set_newest(const Observation& o, Hypothesis& h) {
  add_range(h.values, 1, std::min<std::int64_t>(o.kv_len(), 16) + 1);
}

void set_empty_slots(const Observation&, Hypothesis& h) {
  for (double n = 1; n <= 16; ++n) h.values.push_back(n);
  for (double n = 24; n <= 1 << 20; n *= 1.5) h.values.push_back(std::round(n));
  h.is_continuous = h.is_logarithmic = true;
}

void set_times(const Observation&, Hypothesis& h) {
  for (double exponent = -12; exponent <= 12.01; exponent += 0.5) {
    if (exponent != 0) h.values.push_back(std::exp2(exponent));
  }
  h.is_continuous = h.is_logarithmic = true;
}

void set_bits(const Observation&, Hypothesis& h) { h.values = {8, 11}; }

void set_head_dims(const Observation& o, Hypothesis& h) {
  for (int dim = 2; dim <= 32; dim += 2) h.values.push_back(dim);
  for (int dim = 40; dim <= 576; dim += 8) h.values.push_back(dim);
  std::erase(h.values, o.spec.heads.qk_head_dim);
}

// Rows at the end of the gradients that hold a NaN.
std::int64_t num_nan_rows(const Observation& o) {
  std::int64_t most = 0;
  const auto count = [&](const std::vector<double>& d, std::int64_t num_rows) {
    const std::int64_t row_size = num_rows == 0 ? 0 : static_cast<std::int64_t>(d.size()) / num_rows;
    std::int64_t tail = 0;
    for (auto end = d.end(); row_size > 0 && end != d.begin(); end -= row_size, ++tail) {
      if (std::none_of(end - row_size, end, [](double x) { return std::isnan(x); })) break;
    }
    most = std::max(most, tail);
  };
  count(o.d_q, o.q_len());
  count(o.d_k, o.kv_len());
  count(o.d_v, o.kv_len());
  return most;
}

void set_unwritten(const Observation& o, Hypothesis& h) {
  h.values.push_back(static_cast<double>(num_nan_rows(o)));  // read off
}

void set_windows(const Observation& o, Hypothesis& h) {
  add_range(h.values, 1, std::min<std::int64_t>(o.kv_len(), 512));
}

void set_taken(const Observation& o, Hypothesis& h) {
  h.values = {8, 2, 4, 16, 32, 64, 1.5, 3, 6, 10, 128};
  std::erase(h.values, o.spec.rope.scaling.factor);
  h.is_continuous = h.is_logarithmic = true;
}

void set_moved(const Observation&, Hypothesis& h) {
  add_range(h.values, -8, 25);
  std::erase(h.values, 0.0);
  sort_by_size(h.values);
}

void set_later(const Observation& o, Hypothesis& h) {
  add_range(h.values, 1, std::min<std::int64_t>(o.kv_len(), 17));
}

void set_backward_keys(const Observation&, Hypothesis& h) { h.values = {0, 1, -1}; }

bool is_zero(const std::vector<double>& x) {
  return !x.empty() && std::ranges::all_of(x, [](double y) { return y == 0; });
}

// A key that is 0 in every component of head 0.
bool has_zero_key(const Observation& o) {
  const HeadSpec& heads = o.spec.heads;
  const std::int64_t row_size = static_cast<std::int64_t>(heads.num_kv_heads) * heads.qk_head_dim;
  for (auto row = o.k.begin(); row != o.k.end(); row += row_size) {
    if (std::all_of(row, row + heads.qk_head_dim, [](double x) { return x == 0; })) return true;
  }
  return false;
}

// False: it changes nothing that this observation holds.
bool can_show(const FaultKind& kind, const Observation& o) {
  const bool has_gradients = !o.d_q.empty() || !o.d_k.empty() || !o.d_v.empty();
  if (kind.group == FaultGroup::kGradient && !has_gradients) return false;
  switch (kind.needs) {
    case FaultNeed::kNothing:
      return true;
    case FaultNeed::kCachedKeys:
      return o.is_self_attention() && (o.kv_len() > o.q_len() || o.call_begins.size() > 1);
    case FaultNeed::kBias:
      return !o.bias.empty();
    case FaultNeed::kZeroKey:
      return has_zero_key(o);
    case FaultNeed::kNanGradient:
      return num_nan_rows(o) > 0;
    case FaultNeed::kZeroGradient:
      return is_zero(o.d_q) || is_zero(o.d_k) || is_zero(o.d_v);
    case FaultNeed::kPaddingBehind:
      return !o.kv_coords.empty() && !o.kv_coords.back().valid;
  }
  return true;
}

// Rows of q and of k have few widths in common, and one table of values holds all: what does not divide the
// rows of a hypothesis does not apply.
void set_widths(const Observation& o, Hypothesis& h) {
  const HeadSpec& heads = o.spec.heads;
  for (const int width :
       other_head_widths(std::int64_t{heads.num_q_heads} * heads.qk_head_dim, heads.qk_head_dim)) {
    h.values.push_back(width);
  }
}

// Blocks as large as a window, or one less, come first; one that holds all tokens is none.
void set_blocks(const Observation& o, Hypothesis& h) {
  const std::int64_t end = std::min<std::int64_t>(o.kv_len(), 257);
  const auto add = [&](std::int64_t n) {
    const auto value = static_cast<double>(n);
    if (n >= 2 && n < end && std::ranges::count(h.values, value) == 0) h.values.push_back(value);
  };
  const std::int64_t window = largest_window(o.spec.mask);
  for (const std::int64_t n : {window, window - 1}) add(n);
  for (std::int64_t n = 2; n < end; ++n) add(n);
}

// Values of a parameter behind the first: as many hypotheses.
std::vector<double> rest_values(std::string_view parameter) {
  if (parameter == "empty") return {1, 2, 3};
  if (parameter == "back") return {1, 0, 2};
  return {1, 2, 3, 4};  // first keys that are kept; 0 is an offset of all that follows
}

struct Search {
  std::string_view parameter;
  void (*set)(const Observation&, Hypothesis&);
};

// By the name of the parameter, which means the same in every row.
constexpr Search kSearches[] = {
    {"offset", set_offsets},
    {"keys", set_window_keys},
    {"fill", set_fills},
    {"theta", set_thetas},
    {"rows", set_table_rows},
    {"factor", set_factors},
    {"rule", set_rules},
    {"origin", set_origins},
    {"slots", set_slots},
    {"newest", set_newest},
    {"slots_read", set_empty_slots},
    {"times", set_times},
    {"bits", set_bits},
    {"head_dim", set_head_dims},
    {"unwritten", set_unwritten},
    {"window", set_windows},
    {"taken", set_taken},
    {"moved", set_moved},
    {"later", set_later},
    {"window_keys", set_backward_keys},
    {"width", set_widths},
    {"block", set_blocks},
};

}  // namespace

Fault Hypothesis::fault(double value) const {
  if (values.empty()) return {kind, {}};
  std::vector<double> all{value};
  all.insert(all.end(), rest.begin(), rest.end());
  return {kind, all};
}

std::vector<Hypothesis> hypotheses(std::span<const Observation> observations) {
  const Observation& longest = *std::ranges::max_element(observations, {}, &Observation::kv_len);
  std::vector<Hypothesis> all;
  for (const FaultKind& kind : fault_table()) {
    if (kind.on_spec == nullptr && kind.on_call == nullptr && kind.on_deviation == nullptr) continue;
    const auto shows =
        std::ranges::find_if(observations, [&](const Observation& o) { return can_show(kind, o); });
    if (shows == observations.end()) continue;
    Hypothesis h{&kind, {}, {}, false, false};
    if (!kind.parameters.empty()) {
      const auto search = std::ranges::find(kSearches, kind.parameters.front().name, &Search::parameter);
      if (search == std::end(kSearches)) {
        h.values = {kind.parameters.front().value};
      } else {
        search->set(can_show(kind, longest) ? longest : *shows, h);
        if (h.values.empty()) continue;
      }
    }
    if (kind.parameters.size() < 2) {
      all.push_back(std::move(h));
      continue;
    }
    for (const double value : rest_values(kind.parameters[1].name)) {
      h.rest = {value};
      all.push_back(h);
    }
  }
  return all;
}

}  // namespace sightline::checker
