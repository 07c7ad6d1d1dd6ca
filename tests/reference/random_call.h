// A small random attention call that owns its arrays, for tests of the oracle.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "sightline/base/rng.h"
#include "sightline/reference/attention.h"

namespace sightline::reference {

struct RandomCall {
  AttentionSpec spec;
  std::vector<double> q, k, v, bias;
  std::vector<TokenCoord> q_coords, kv_coords;
  std::vector<std::int64_t> q_rope_pos, kv_rope_pos;
  std::vector<double> d_out, d_lse;
  std::int64_t rope_length = 0;
  std::int64_t num_cached = 0;
  std::array<std::int64_t, 3> bias_strides{};
  MaskTables tables;

  /// Queries at q_begin .. kv_len - 1 over keys at 0 .. kv_len - 1.
  RandomCall(const AttentionSpec& the_spec, std::int64_t q_begin, std::int64_t kv_len, std::uint64_t seed)
      : spec(the_spec), q_coords(coords_range(q_begin, kv_len)), kv_coords(coords_range(0, kv_len)) {
    Rng rng(seed);
    const HeadSpec& h = spec.heads;
    const std::int64_t q_len = kv_len - q_begin;
    q = normals(rng, q_len * h.num_q_heads * h.qk_head_dim);
    k = normals(rng, kv_len * h.num_kv_heads * h.qk_head_dim);
    v = normals(rng, kv_len * h.num_kv_heads * h.v_head_dim);
    d_out = normals(rng, q_len * h.num_q_heads * h.v_head_dim);
  }

  static std::vector<double> normals(Rng& rng, std::int64_t count) {
    std::vector<double> x(static_cast<std::size_t>(count));
    for (double& value : x) value = rng.next_normal();
    return x;
  }

  std::int64_t q_len() const { return static_cast<std::int64_t>(q_coords.size()); }
  std::int64_t kv_len() const { return static_cast<std::int64_t>(kv_coords.size()); }

  /// A bias with one entry for each pair of each head.
  void add_bias(std::uint64_t seed) {
    Rng rng(seed);
    bias = normals(rng, spec.heads.num_q_heads * q_len() * kv_len());
    bias_strides = {q_len() * kv_len(), kv_len(), 1};
  }
  void add_d_lse(std::uint64_t seed) {
    Rng rng(seed);
    d_lse = normals(rng, q_len() * spec.heads.num_q_heads);
  }

  AttentionInputs inputs() const {
    const HeadSpec& h = spec.heads;
    AttentionInputs in;
    in.q = dense_view(q.data(), std::array<std::int64_t, 3>{q_len(), h.num_q_heads, h.qk_head_dim});
    in.k = dense_view(k.data(), std::array<std::int64_t, 3>{kv_len(), h.num_kv_heads, h.qk_head_dim});
    in.v = dense_view(v.data(), std::array<std::int64_t, 3>{kv_len(), h.num_kv_heads, h.v_head_dim});
    in.q_coords = q_coords;
    in.kv_coords = kv_coords;
    in.q_rope_pos = q_rope_pos;
    in.kv_rope_pos = kv_rope_pos;
    in.rope_length = rope_length;
    in.num_cached = num_cached;
    in.tables = tables;
    if (!bias.empty()) in.bias = {bias.data(), {h.num_q_heads, q_len(), kv_len()}, bias_strides};
    return in;
  }
  AttentionUpstream upstream() const {
    const HeadSpec& h = spec.heads;
    AttentionUpstream up;
    up.d_out = dense_view(d_out.data(), std::array<std::int64_t, 3>{q_len(), h.num_q_heads, h.v_head_dim});
    if (!d_lse.empty())
      up.d_lse = dense_view(d_lse.data(), std::array<std::int64_t, 2>{q_len(), h.num_q_heads});
    return up;
  }
  AttentionOutputs forward(Keep keep = {}, const Deviation& deviation = {}) const {
    return attention_forward(spec, inputs(), keep, deviation).value();
  }
  AttentionGradients backward(const Deviation& deviation = {}) const {
    return attention_backward(spec, inputs(), upstream(), deviation).value();
  }
};

inline AttentionSpec small_spec(const char* mask = "causal", HeadSpec heads = {4, 2, 6, 5}) {
  AttentionSpec spec;
  spec.heads = heads;
  spec.mask = parse_mask(mask).value();
  return spec;
}

inline RopeSpec small_rope(RopePairing pairing = RopePairing::kInterleaved, int rotary_dim = 4) {
  RopeSpec rope;
  rope.pairing = pairing;
  rope.rotary_dim = rotary_dim;
  rope.theta = 100;
  return rope;
}

/// The largest |a - b|; infinity for other sizes or a NaN on either side. Equal infinities differ by 0.
inline double max_difference(const std::vector<double>& a, const std::vector<double>& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kInfinity;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    const double difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return kInfinity;
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace sightline::reference
