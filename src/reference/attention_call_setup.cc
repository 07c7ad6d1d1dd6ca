// The checks of a call and the rotation of its queries and keys.
#include <algorithm>

#include "attention_call.h"
#include "sightline/reference/rotate.h"

namespace sightline::reference {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

Result<void> check_shape(const char* function, const char* name, std::span<const std::int64_t> got,
                         std::span<const std::int64_t> expected) {
  if (std::ranges::equal(got, expected)) return {};
  return fail(ErrorKind::kInvalidArgument, "{}: {} has shape [{}], expected [{}]", function, name,
              fmt::join(got, ", "), fmt::join(expected, ", "));
}

Result<void> check_count(const char* function, const char* name, std::size_t got, std::int64_t expected,
                         bool may_be_empty) {
  if (may_be_empty && got == 0) return {};
  if (got == at(expected)) return {};
  return fail(ErrorKind::kInvalidArgument, "{}: {} has {} entries, expected {}", function, name, got,
              expected);
}

Result<void> check_coordinates(const char* function, const char* what, std::span<const TokenCoord> coords,
                               std::span<const std::int64_t> rope_pos) {
  for (std::size_t i = 0; i < coords.size(); ++i) {
    if (!coords[i].valid) continue;
    for (const std::int64_t x :
         {coords[i].pos, coords[i].segment_start, rope_pos.empty() ? coords[i].pos : rope_pos[i]}) {
      if (is_coordinate(x)) continue;
      return fail(ErrorKind::kInvalidArgument,
                  "{}: token {} of the {} has coordinate {}, expected within 2^53", function, i, what, x);
    }
  }
  return {};
}

}  // namespace

Result<void> AttentionCall::check(const char* function) const {
  SIGHTLINE_CHECK(validate(spec_));
  const HeadSpec& heads = spec_.heads;
  const std::int64_t q_shape[] = {in_.q.shape[0], heads.num_q_heads, heads.qk_head_dim};
  const std::int64_t k_shape[] = {in_.k.shape[0], heads.num_kv_heads, heads.qk_head_dim};
  const std::int64_t v_shape[] = {in_.k.shape[0], heads.num_kv_heads, heads.v_head_dim};
  SIGHTLINE_CHECK(check_shape(function, "q", in_.q.shape, q_shape));
  SIGHTLINE_CHECK(check_shape(function, "k", in_.k.shape, k_shape));
  SIGHTLINE_CHECK(check_shape(function, "v", in_.v.shape, v_shape));
  SIGHTLINE_CHECK(check_count(function, "q_coords", in_.q_coords.size(), q_len(), false));
  SIGHTLINE_CHECK(check_count(function, "kv_coords", in_.kv_coords.size(), kv_len(), false));
  SIGHTLINE_CHECK(check_count(function, "q_rope_pos", in_.q_rope_pos.size(), q_len(), true));
  SIGHTLINE_CHECK(check_count(function, "kv_rope_pos", in_.kv_rope_pos.size(), kv_len(), true));
  SIGHTLINE_CHECK(check_count(function, "kv_rope_length", in_.kv_rope_length.size(), kv_len(), true));
  if (in_.num_cached < 0 || in_.num_cached > kv_len()) {
    return fail(ErrorKind::kInvalidArgument, "{}: num_cached = {}, expected 0 to the {} keys", function,
                in_.num_cached, kv_len());
  }
  SIGHTLINE_CHECK(check_coordinates(function, "queries", in_.q_coords, in_.q_rope_pos));
  SIGHTLINE_CHECK(check_coordinates(function, "keys", in_.kv_coords, in_.kv_rope_pos));
  if (has_bias()) {
    const std::int64_t bias_shape[] = {heads.num_q_heads, q_len(), kv_len()};
    SIGHTLINE_CHECK(check_shape(function, "bias", in_.bias.shape, bias_shape));
  }
  return validate_tables(spec_.mask, in_.tables, q_len(), kv_len());
}

std::int64_t AttentionCall::q_rope_pos(std::int64_t i) const {
  return in_.q_rope_pos.empty() ? in_.q_coords[at(i)].pos : in_.q_rope_pos[at(i)];
}

std::int64_t AttentionCall::kv_rope_pos(std::int64_t j) const {
  return in_.kv_rope_pos.empty() ? in_.kv_coords[at(j)].pos : in_.kv_rope_pos[at(j)];
}

std::int64_t AttentionCall::q_rope_pos_as_first(std::int64_t i) const {
  const TokenCoord& q = in_.q_coords[at(i)];
  return in_cache_rope_pos(q_rope_pos(i), q.pos - q.segment_start, reach_.num_first + reach_.window);
}

std::int64_t AttentionCall::call_rope_length() const {
  if (spec_.rope.length_policy == RopeLengthPolicy::kFixedAtStart) return in_.rope_length;
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < q_len(); ++i) {
    if (in_.q_coords[at(i)].valid) last = std::max(last, q_rope_pos(i));
  }
  for (std::int64_t j = 0; j < kv_len(); ++j) {
    if (in_.kv_coords[at(j)].valid) last = std::max(last, kv_rope_pos(j));
  }
  return last + 1;
}

void AttentionCall::rotate_all() {
  seen_ = deviant_coords(spec_, in_, deviation_);
  reach_ = reach_back(spec_.mask);
  in_cache_ =
      spec_.rope.pairing != RopePairing::kNone && spec_.rope.position_policy == PositionPolicy::kInCache;
  q_frequencies_ = rope_frequencies(spec_.rope, call_rope_length());
  for (const std::int64_t length : in_.kv_rope_length) {
    kv_frequencies_.push_back(rope_frequencies(spec_.rope, length));
  }
  if (kv_frequencies_.empty()) kv_frequencies_.push_back(q_frequencies_);

  const auto dim = at(qk_dim());
  const auto append = [&](const StridedView<const double, 3>& from, std::int64_t row, std::int64_t head_idx,
                          std::span<const CosSin> turns, std::vector<double>& to) {
    for (std::int64_t c = 0; c < qk_dim(); ++c) to.push_back(from(row, head_idx, c));
    turn(turns, std::span(to).last(dim));
  };
  for (std::int64_t i = 0; i < q_len(); ++i) {
    const auto turns = turns_at(q_frequencies_, q_rope_pos(i));
    for (int h = 0; h < num_q_heads(); ++h) append(in_.q, i, h, turns, rotated_q_);
    if (!in_cache_) continue;
    const auto turns_as_first = turns_at(q_frequencies_, q_rope_pos_as_first(i));
    for (int h = 0; h < num_q_heads(); ++h) append(in_.q, i, h, turns_as_first, rotated_q_as_first_);
  }
  for (std::int64_t j = 0; j < kv_len(); ++j) {
    const bool is_moved = is_moved_over_all(j);
    const std::int64_t rope_pos = kv_rope_pos(j) + (is_moved ? deviation_.moved_over_all : 0);
    const auto turns = turns_at(kv_frequencies_[in_.kv_rope_length.empty() ? 0 : at(j)], rope_pos);
    for (int g = 0; g < num_kv_heads(); ++g) {
      append(in_.k, j, g, turns, rotated_k_);
      if (is_moved) move_over_all(std::span(rotated_k_).last(dim));
    }
  }
}

std::vector<CosSin> AttentionCall::turns_at(std::span<const double> frequencies, std::int64_t rope_pos,
                                            Turn turn) const {
  return cos_sin(spec_.rope, frequencies, rope_pos, turn, deviation_.rope_rounded, deviation_.rope_precision);
}

void AttentionCall::turn(std::span<const CosSin> turns, std::span<double> head) const {
  if (!deviation_.rope_partner_of_head) {
    rotate(spec_.rope, turns, head);
    return;
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    double& a = head[i];
    double& b = head[i + at(qk_dim() / 2)];
    const double turned = a * turns[i].cosine - b * turns[i].sine;
    b = a * turns[i].sine + b * turns[i].cosine;
    a = turned;
  }
}

// The cache moves keys of the first call before any other reads them.
bool AttentionCall::is_moved_over_all(std::int64_t j) const {
  const std::int64_t first_end = in_.append_begins.size() > 1 ? in_.append_begins[1] : in_.num_cached;
  return deviation_.moved_over_all != 0 && j >= deviation_.moved_kept && j < first_end;
}

void AttentionCall::move_over_all(std::span<double> head) const {
  RopeSpec wide = spec_.rope;
  wide.rotary_dim = qk_dim();
  rotate(wide, rope_frequencies(wide, call_rope_length()), -deviation_.moved_over_all, head, Turn::kMove);
}

void AttentionCall::unrotate_d_q(std::int64_t i, bool as_first, std::span<double> d_head) const {
  const std::int64_t rope_pos = as_first ? q_rope_pos_as_first(i) : q_rope_pos(i);
  turn(turns_at(q_frequencies_, rope_pos, Turn::kTranspose), d_head);
}

void AttentionCall::unrotate_d_k(std::int64_t j, std::span<double> d_head) const {
  const auto& frequencies = kv_frequencies_[in_.kv_rope_length.empty() ? 0 : at(j)];
  turn(turns_at(frequencies, kv_rope_pos(j), Turn::kTranspose), d_head);
}

}  // namespace sightline::reference
