// Observations for tests of diagnose: random inputs under a declaration, and what the oracle answers with
// faults.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "checker/simulate.h"
#include "sightline/base/rng.h"
#include "sightline/faults/fault_table.h"

namespace sightline::checker {

// Random inputs under a declaration; queries are the last tokens, in calls.
inline Observation random_observation(const AttentionSpec& spec, std::int64_t kv_len,
                                      std::vector<std::int64_t> call_begins, std::int64_t q_len,
                                      std::uint64_t seed) {
  Observation o;
  o.spec = spec;
  Rng rng(seed);
  const HeadSpec& h = spec.heads;
  const auto fill = [&](std::vector<double>& x, std::int64_t count) {
    x.resize(static_cast<std::size_t>(count));
    for (double& y : x) y = static_cast<float>(rng.next_normal());
  };
  fill(o.q, q_len * h.num_q_heads * h.qk_head_dim);
  fill(o.k, kv_len * h.num_kv_heads * h.qk_head_dim);
  fill(o.v, kv_len * h.num_kv_heads * h.v_head_dim);
  o.kv_coords = coords_range(0, kv_len);
  o.q_coords = coords_range(kv_len - q_len, kv_len);
  o.call_begins = std::move(call_begins);
  return o;
}

// What an implementation with these faults answers, rounded to f32.
inline void observe(Observation& o, std::span<const Fault> faults) {
  o.out.assign(1, 0.0);  // asked for; the size does not matter to the simulator
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < o.q_len(); ++i) rows.push_back(i);
  const auto prediction = Simulator(o, rows).predict(faults);
  ASSERT_TRUE(prediction) << prediction.error().message;
  o.out = prediction->out.values;
  for (double& x : o.out) x = static_cast<float>(x);
}

// "mask.x/y" of "mask.x/y:n=3".
inline std::string text_of_name(std::string_view fault) {
  return std::string(fault.substr(0, fault.find(':')));
}

inline AttentionSpec usual_spec(const char* mask) {
  AttentionSpec spec;
  spec.heads = {4, 2, 8, 6};
  spec.mask = parse_mask(mask).value();
  spec.rope.pairing = RopePairing::kHalfSplit;
  spec.rope.rotary_dim = 8;
  spec.rope.theta = 10000;
  return spec;
}

}  // namespace sightline::checker
