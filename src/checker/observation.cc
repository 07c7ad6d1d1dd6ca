#include "sightline/checker/observation.h"

#include <algorithm>

#include "sightline/base/half.h"

namespace sightline::checker {
namespace {

constexpr std::string_view kTypeNames[] = {"f64", "f32", "bf16", "f16"};  // in the order of ElementType

Result<void> check_size(std::string_view name, const std::vector<double>& array, std::int64_t expected,
                        bool is_optional) {
  const auto size = static_cast<std::int64_t>(array.size());
  if (size == expected || (is_optional && array.empty())) return {};
  return fail(ErrorKind::kInvalidArgument, "diagnose: {} has {} numbers, expected {}", name, size, expected);
}

}  // namespace

std::string_view to_string(ElementType type) { return kTypeNames[static_cast<std::size_t>(type)]; }

std::optional<ElementType> parse_element_type(std::string_view text) {
  const auto found = std::ranges::find(kTypeNames, text);
  if (found == std::end(kTypeNames)) return std::nullopt;
  return static_cast<ElementType>(found - std::begin(kTypeNames));
}

int bytes_of(ElementType type) { return type == ElementType::kF64 ? 8 : type == ElementType::kF32 ? 4 : 2; }

double round_to(ElementType type, double x) {
  switch (type) {
    case ElementType::kBf16:
      return to_f32(to_bf16(static_cast<float>(x)));
    case ElementType::kF16:
      return to_f32(to_f16(static_cast<float>(x)));
    case ElementType::kF32:
      return static_cast<float>(x);
    case ElementType::kF64:
      break;
  }
  return x;
}

bool Observation::is_self_attention() const {
  if (q_len() > kv_len()) return false;
  const auto first = static_cast<std::size_t>(kv_len() - q_len());
  const auto rope_pos = [](const std::vector<std::int64_t>& given, const TokenCoord& coord, std::size_t i) {
    return given.empty() ? coord.pos : given[i];
  };
  for (std::size_t i = 0; i < q_coords.size(); ++i) {
    const TokenCoord& query = q_coords[i];
    const TokenCoord& key = kv_coords[first + i];
    if (query != key) return false;
    if (query.valid && rope_pos(q_rope_pos, query, i) != rope_pos(kv_rope_pos, key, first + i)) return false;
  }
  return true;
}

Result<std::vector<std::int32_t>> draft_parents_from(std::span<const std::int64_t> parents) {
  std::vector<std::int32_t> checked;
  for (const std::int64_t parent : parents) {
    const auto node = static_cast<std::int64_t>(checked.size());
    if (parent < -1 || parent >= node) {
      return fail(ErrorKind::kInvalidArgument, "draft_parents[{}] = {}, expected -1 to {}", node, parent,
                  node - 1);
    }
    checked.push_back(static_cast<std::int32_t>(parent));
  }
  return checked;
}

namespace {

std::int32_t draft_node(std::int64_t row, std::int64_t num_rows, std::size_t num_drafts) {
  const std::int64_t first = num_rows - static_cast<std::int64_t>(num_drafts);
  return static_cast<std::int32_t>(std::max<std::int64_t>(row - first, -1));
}

}  // namespace

std::vector<std::int32_t> draft_nodes(std::int64_t num_rows, std::size_t num_drafts) {
  std::vector<std::int32_t> nodes;
  for (std::int64_t row = 0; row < num_rows; ++row) nodes.push_back(draft_node(row, num_rows, num_drafts));
  return nodes;
}

bool sees(const Observation& o, const MaskSpec& mask, std::int64_t row, std::int64_t key) {
  // Tables of one row each.
  const std::int32_t q_node = draft_node(row, o.q_len(), o.draft_parents.size());
  const std::int32_t kv_node = draft_node(key, o.kv_len(), o.draft_parents.size());
  MaskTables tables;
  tables.q_node = {&q_node, 1};
  tables.kv_node = {&kv_node, 1};
  tables.parent = o.draft_parents;
  return is_visible(mask, tables, {o.q_coords[static_cast<std::size_t>(row)], 0},
                    {o.kv_coords[static_cast<std::size_t>(key)], 0});
}

namespace {

Result<void> validate_drafts(const Observation& o) {
  const auto num_drafts = static_cast<std::int64_t>(o.draft_parents.size());
  if (!uses(o.spec.mask, MaskOp::kTree)) {
    if (num_drafts == 0) return {};
    return fail(ErrorKind::kInvalidArgument,
                "diagnose: there is a draft tree, and no `tree` in the mask '{}'", to_string(o.spec.mask));
  }
  if (num_drafts > o.kv_len()) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: the draft tree has {} nodes, there are {} keys",
                num_drafts, o.kv_len());
  }
  const std::vector<std::int64_t> parents(o.draft_parents.begin(), o.draft_parents.end());
  SIGHTLINE_CHECK(draft_parents_from(parents));
  if (!o.call_begins.empty() && o.call_begins.back() > std::max<std::int64_t>(o.q_len() - num_drafts, 0)) {
    return fail(ErrorKind::kInvalidArgument,
                "diagnose: a call begins at row {}, within the draft tree of the last {} rows",
                o.call_begins.back(), num_drafts);
  }
  return {};
}

}  // namespace

Result<void> validate(const Observation& o) {
  SIGHTLINE_CHECK(validate(o.spec));
  SIGHTLINE_CHECK(validate_drafts(o));
  const bool is_dense = uses(o.spec.mask, MaskOp::kDense);
  const auto num_pairs = static_cast<std::size_t>(o.q_len() * o.kv_len());
  if (o.dense.size() != (is_dense ? num_pairs : 0)) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: dense has {} entries, expected {} for the mask '{}'",
                o.dense.size(), is_dense ? num_pairs : 0, to_string(o.spec.mask));
  }
  const HeadSpec& heads = o.spec.heads;
  const std::int64_t q_size = o.q_len() * heads.num_q_heads * heads.qk_head_dim;
  const std::int64_t k_size = o.kv_len() * heads.num_kv_heads * heads.qk_head_dim;
  const std::int64_t v_size = o.kv_len() * heads.num_kv_heads * heads.v_head_dim;
  const std::int64_t out_size = o.q_len() * heads.num_q_heads * heads.v_head_dim;
  const std::int64_t pairs = o.q_len() * heads.num_q_heads * o.kv_len();
  SIGHTLINE_CHECK(check_size("q", o.q, q_size, false));
  SIGHTLINE_CHECK(check_size("k", o.k, k_size, false));
  SIGHTLINE_CHECK(check_size("v", o.v, v_size, false));
  SIGHTLINE_CHECK(check_size("bias", o.bias, pairs, true));
  SIGHTLINE_CHECK(check_size("out", o.out, out_size, true));
  SIGHTLINE_CHECK(check_size("lse", o.lse, o.q_len() * heads.num_q_heads, true));
  SIGHTLINE_CHECK(check_size("weights", o.weights, pairs, true));
  const bool has_gradients = !o.d_q.empty() || !o.d_k.empty() || !o.d_v.empty();
  SIGHTLINE_CHECK(check_size("d_out", o.d_out, out_size, !has_gradients));
  SIGHTLINE_CHECK(check_size("d_q", o.d_q, q_size, true));
  SIGHTLINE_CHECK(check_size("d_k", o.d_k, k_size, true));
  SIGHTLINE_CHECK(check_size("d_v", o.d_v, v_size, true));
  if (!o.q_rope_pos.empty() && o.q_rope_pos.size() != o.q_coords.size()) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: q_rope_pos has {} entries, expected {}",
                o.q_rope_pos.size(), o.q_coords.size());
  }
  if (!o.kv_rope_pos.empty() && o.kv_rope_pos.size() != o.kv_coords.size()) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: kv_rope_pos has {} entries, expected {}",
                o.kv_rope_pos.size(), o.kv_coords.size());
  }
  if (o.out.empty() && o.lse.empty() && o.weights.empty() && !has_gradients) {
    return fail(ErrorKind::kInvalidArgument,
                "diagnose: nothing was observed, expected one of out, lse, weights, d_q, d_k, d_v");
  }
  const auto& begins = o.call_begins;
  const bool in_order =
      begins.empty() || (begins.front() == 0 && std::ranges::is_sorted(begins) &&
                         std::ranges::adjacent_find(begins) == begins.end() && begins.back() < o.q_len());
  if (!in_order) {
    return fail(ErrorKind::kInvalidArgument,
                "diagnose: call_begins must rise from 0 and stay below q_len = {}", o.q_len());
  }
  if (has_gradients && begins.size() > 1) {
    return fail(ErrorKind::kInvalidArgument, "diagnose: gradients of {} calls, expected those of one",
                begins.size());
  }
  return {};
}

}  // namespace sightline::checker
