#include "sightline/reference/misread.h"

#include <algorithm>
#include <span>

#include "sightline/reference/rotate.h"

namespace sightline::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::vector<double> dense_copy(const StridedView<const double, 3>& view) {
  std::vector<double> copy;
  copy.reserve(at(view.size()));
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    for (std::int64_t h = 0; h < view.shape[1]; ++h) {
      for (std::int64_t c = 0; c < view.shape[2]; ++c) copy.push_back(view(i, h, c));
    }
  }
  return copy;
}

/// Offsets within [all q | all k | all v] of one token, in the order [q of group, k, v] of each key head.
std::vector<std::size_t> by_group(const HeadSpec& heads) {
  const auto num_groups = at(heads.num_kv_heads);
  const auto q = at(heads.group_size()) * at(heads.qk_head_dim);
  const auto k = at(heads.qk_head_dim);
  const auto v = at(heads.v_head_dim);
  std::vector<std::size_t> order;
  const auto append = [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) order.push_back(begin + i);
  };
  for (std::size_t g = 0; g < num_groups; ++g) {
    append(g * q, q);
    append(num_groups * q + g * k, k);
    append(num_groups * (q + k) + g * v, v);
  }
  return order;
}

/// Component r of each token of `x` becomes from[r]; back: the inverse.
void reorder(bool back, std::span<const std::int64_t> from, std::vector<double>& x) {
  const std::vector<double> stored = x;
  for (std::size_t token = 0; token < x.size(); token += from.size()) {
    for (std::size_t r = 0; r < from.size(); ++r) {
      const std::size_t right = token + at(from[r]), wrong = token + r;
      x[back ? right : wrong] = stored[back ? wrong : right];
    }
  }
}

/// [tokens, heads, dim] whose memory is read as [heads, tokens, dim]; back: the inverse.
void read_heads_first(bool back, int num_heads, int dim, std::vector<double>& x) {
  const std::vector<double> stored = x;
  const auto row = at(num_heads) * at(dim);
  const std::size_t num_tokens = x.size() / row;
  for (std::size_t t = 0; t < num_tokens; ++t) {
    for (std::size_t h = 0; h < at(num_heads); ++h) {
      const std::size_t meant = t * row + h * at(dim);
      const std::size_t read = (h * num_tokens + t) * at(dim);
      std::copy_n(stored.data() + (back ? meant : read), dim, x.data() + (back ? read : meant));
    }
  }
}

}  // namespace

bool rearranges_features(const Deviation& d) {
  return d.fused_layout != FusedLayout::kRight || d.row_mistake != RowMistake::kNone;
}

Deviation without_rearranging(const Deviation& deviation) {
  Deviation rest = deviation;
  rest.fused_layout = FusedLayout::kRight;
  rest.row_mistake = RowMistake::kNone;
  rest.q_row_width = rest.k_row_width = 0;
  return rest;
}

Deviation only_rearranging(const Deviation& deviation) {
  Deviation alone;
  alone.fused_layout = deviation.fused_layout;
  alone.row_mistake = deviation.row_mistake;
  alone.q_row_width = deviation.q_row_width;
  alone.k_row_width = deviation.k_row_width;
  return alone;
}

bool misreads_inputs(const Deviation& d) {
  return d.cached_key_factor != 1 || d.cached_value_factor != 1 || d.value_factor != 1 || d.keys_as_values ||
         rearranges_features(d);
}

Deviation as_read(const Deviation& deviation) {
  Deviation rest = without_rearranging(deviation);
  rest.cached_key_factor = rest.cached_value_factor = rest.value_factor = 1;
  rest.keys_as_values = false;
  rest.out_layout = OutLayout::kTokensFirst;
  return rest;
}

MisreadInputs::MisreadInputs(const AttentionSpec& spec, const AttentionInputs& inputs,
                             const Deviation& deviation)
    : heads_(spec.heads),
      rope_(spec.rope),
      row_mistake_(deviation.row_mistake),
      q_row_width_(deviation.q_row_width),
      k_row_width_(deviation.k_row_width),
      fused_layout_(deviation.fused_layout),
      keys_as_values_(deviation.keys_as_values),
      cached_key_factor_(deviation.cached_key_factor),
      cached_value_factor_(deviation.cached_value_factor),
      value_factor_(deviation.value_factor),
      in_(inputs),
      q_(dense_copy(inputs.q)),
      k_(dense_copy(inputs.k)),
      v_(dense_copy(inputs.v)) {}

Result<MisreadInputs> MisreadInputs::make(const AttentionSpec& spec, const AttentionInputs& inputs,
                                          const Deviation& deviation) {
  const bool is_fused = deviation.fused_layout != FusedLayout::kRight;
  if (is_fused && inputs.q.shape[0] != inputs.k.shape[0]) {
    return fail(ErrorKind::kInvalidArgument, "fused q, k and v: {} queries and {} keys, expected as many",
                inputs.q.shape[0], inputs.k.shape[0]);
  }
  if (deviation.keys_as_values && spec.heads.qk_head_dim != spec.heads.v_head_dim) {
    return fail(ErrorKind::kInvalidArgument, "keys in place of values: widths {} and {}, expected equal ones",
                spec.heads.qk_head_dim, spec.heads.v_head_dim);
  }
  MisreadInputs misread(spec, inputs, deviation);
  if (is_fused) misread.split_fused(false, misread.q_, misread.k_, misread.v_);
  misread.reorder_rows(false, misread.q_, misread.k_);
  if (deviation.keys_as_values) {
    misread.v_ = misread.k_;
    if (spec.rope.cache_stage == CacheStage::kAfterRotation) {
      const std::vector<double> frequencies = rope_frequencies(spec.rope, inputs.rope_length);
      for (std::int64_t j = 0; j < inputs.k.shape[0]; ++j) {
        const std::int64_t rope_pos =
            inputs.kv_rope_pos.empty() ? inputs.kv_coords[at(j)].pos : inputs.kv_rope_pos[at(j)];
        const auto turns = cos_sin(spec.rope, frequencies, rope_pos);
        const auto dim = at(spec.heads.qk_head_dim);
        for (std::size_t g = 0; g < at(spec.heads.num_kv_heads); ++g) {
          rotate(spec.rope, turns,
                 std::span(misread.v_).subspan((at(j) * at(spec.heads.num_kv_heads) + g) * dim, dim));
        }
      }
    }
  }
  misread.scale_cached(misread.k_, misread.v_);
  const HeadSpec& heads = spec.heads;
  misread.in_.q = dense_view<const double, 3>(misread.q_.data(),
                                              {inputs.q.shape[0], heads.num_q_heads, heads.qk_head_dim});
  misread.in_.k = dense_view<const double, 3>(misread.k_.data(),
                                              {inputs.k.shape[0], heads.num_kv_heads, heads.qk_head_dim});
  misread.in_.v = dense_view<const double, 3>(misread.v_.data(),
                                              {inputs.k.shape[0], heads.num_kv_heads, heads.v_head_dim});
  return misread;
}

// A permutation of each token's features; back: its inverse, which is its transpose.
void MisreadInputs::split_fused(bool back, std::vector<double>& q, std::vector<double>& k,
                                std::vector<double>& v) const {
  if (fused_layout_ == FusedLayout::kHeadsFirst) {
    read_heads_first(back, heads_.num_q_heads, heads_.qk_head_dim, q);
    read_heads_first(back, heads_.num_kv_heads, heads_.qk_head_dim, k);
    read_heads_first(back, heads_.num_kv_heads, heads_.v_head_dim, v);
    return;
  }
  const auto q_size = at(heads_.num_q_heads) * at(heads_.qk_head_dim);
  const auto k_size = at(heads_.num_kv_heads) * at(heads_.qk_head_dim);
  const auto v_size = at(heads_.num_kv_heads) * at(heads_.v_head_dim);
  const std::vector<std::size_t> order = by_group(heads_);
  const bool gathers = (fused_layout_ == FusedLayout::kGroupsAsBlocks) != back;
  std::vector<double> from(order.size()), to(order.size());
  for (std::size_t t = 0; t * q_size < q.size(); ++t) {
    auto* const qt = q.data() + t * q_size;
    auto* const kt = k.data() + t * k_size;
    auto* const vt = v.data() + t * v_size;
    std::copy_n(vt, v_size, std::copy_n(kt, k_size, std::copy_n(qt, q_size, from.begin())));
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (gathers) to[i] = from[order[i]];
      if (!gathers) to[order[i]] = from[i];
    }
    std::copy_n(to.data(), q_size, qt);
    std::copy_n(to.data() + q_size, k_size, kt);
    std::copy_n(to.data() + q_size + k_size, v_size, vt);
  }
}

// A permutation of each token's features; back: its inverse, which is its transpose.
void MisreadInputs::reorder_rows(bool back, std::vector<double>& q, std::vector<double>& k) const {
  if (row_mistake_ == RowMistake::kNone) return;
  const auto rows = [&](int num_heads, int width) {
    return misplaced_rows(row_mistake_, std::int64_t{num_heads} * heads_.qk_head_dim, heads_.qk_head_dim,
                          width, rope_.pairing);
  };
  if (q_row_width_ > 0) reorder(back, rows(heads_.num_q_heads, q_row_width_), q);
  if (k_row_width_ > 0) reorder(back, rows(heads_.num_kv_heads, k_row_width_), k);
}

// Its own transpose.
void MisreadInputs::scale_cached(std::vector<double>& k, std::vector<double>& v) const {
  const auto k_count = std::min(k.size(), at(in_.num_cached * heads_.num_kv_heads * heads_.qk_head_dim));
  const auto v_count = std::min(v.size(), at(in_.num_cached * heads_.num_kv_heads * heads_.v_head_dim));
  for (std::size_t i = 0; i < k_count; ++i) k[i] *= cached_key_factor_;
  for (std::size_t i = 0; i < v_count; ++i) v[i] *= cached_value_factor_;
  for (double& x : v) x *= value_factor_;
}

void MisreadInputs::take_back(AttentionGradients& grads) const {
  scale_cached(grads.d_k, grads.d_v);
  if (keys_as_values_) {
    if (rope_.cache_stage == CacheStage::kAfterRotation) {
      const std::vector<double> frequencies = rope_frequencies(rope_, in_.rope_length);
      const auto row = at(heads_.num_kv_heads * heads_.qk_head_dim);
      const auto dim = at(heads_.qk_head_dim);
      for (std::size_t offset = 0; offset < grads.d_v.size(); offset += dim) {
        const std::size_t j = offset / row;
        const std::int64_t rope_pos = in_.kv_rope_pos.empty() ? in_.kv_coords[j].pos : in_.kv_rope_pos[j];
        rotate(rope_, frequencies, rope_pos, std::span(grads.d_v).subspan(offset, dim), Turn::kTranspose);
      }
    }
    for (std::size_t i = 0; i < grads.d_k.size(); ++i) grads.d_k[i] += grads.d_v[i];
    std::ranges::fill(grads.d_v, 0.0);
  }
  reorder_rows(true, grads.d_q, grads.d_k);
  if (fused_layout_ != FusedLayout::kRight) split_fused(true, grads.d_q, grads.d_k, grads.d_v);
}

OutSource out_source(OutLayout layout, std::int64_t num_rows, int num_heads, OutSource at) {
  std::int64_t flat = 0;
  switch (layout) {
    case OutLayout::kTokensFirst:
      break;
    case OutLayout::kHeadsFirst:
      flat = at.row * num_heads + at.head;
      return {flat % num_rows, static_cast<int>(flat / num_rows)};
    case OutLayout::kTransposedTwice:
      flat = at.head * num_rows + at.row;
      return {flat / num_heads, static_cast<int>(flat % num_heads)};
  }
  return at;
}

}  // namespace sightline::reference
